//! Descriptions of models, sessions and snapshots.
use crate::digest::Digest;
use crate::options::{Codec, Keep};
use crate::raw::{copied, text_in, text_of};
use crate::Token;
use stasis_sys as sys;

/// Description of a model.
#[derive(Clone, Debug)]
#[non_exhaustive]
#[allow(missing_docs)]
pub struct ModelInfo {
    pub architecture: String,
    pub layers: u32,
    /// Width of the residual stream.
    pub hidden: u32,
    pub heads: u32,
    pub kv_heads: u32,
    pub head_dim: u32,
    /// Tokens are below.
    pub vocabulary: u32,
    /// Positions a session may have at most.
    pub context: u64,
    /// Positions in a page of keys and values.
    pub page_positions: u32,
    /// That compute.
    pub threads: u32,
    /// Versions of the numerics contract: core, KV, sampling.
    pub contract: [u32; 3],
    pub end_tokens: Vec<Token>,
    /// Positions that a query sees, for each layer; 0: all.
    pub layer_windows: Vec<u32>,
    pub bos: Option<Token>,
    pub kernels: String,
    pub device: String,
    /// Id of the device profile; empty: the contract alone.
    pub profile: String,
    /// Empty: none was recognised.
    pub chat_template: String,
    /// Weights were stored wider than bf16 and rounded to it.
    pub converted: bool,
    pub has_tokenizer: bool,
    /// Identity of all that determines results.
    pub model: Digest,
    pub embeddings: Digest,
    pub norms: Digest,
    pub head: Digest,
    /// Zero: none.
    pub tokenizer: Digest,
    /// Digest of each layer's attention weights.
    pub attention: Vec<Digest>,
    /// Digest of each layer's MLP weights.
    pub mlp: Vec<Digest>,
    /// As stored, with how many tensors are of each.
    pub weight_types: String,
    /// Bytes of all weights in the files.
    pub weight_bytes: u64,
    /// Whether each layer has a recurrent state in place of keys and values.
    pub layer_recurrent: Vec<bool>,
    /// Bytes of all recurrent layers' states at one position.
    pub state_bytes: u64,
    /// In a layer that has them; 0: none has.
    pub experts: u32,
    /// Experts by which a token is computed, beside a shared one.
    pub experts_chosen: u32,
    /// Version of the contract's part for recurrent layers; 0: the model has none.
    pub contract_recurrent: u32,
    /// Version of the contract's part for experts; 0: the model has none.
    pub contract_experts: u32,
    /// Tensors of the files that no result depends on; empty: none.
    pub ignored: String,
    /// Bytes of the head that predicts further tokens; 0: the model has none.
    pub mtp_bytes: u64,
    /// Heads of keys and values in layers without a window.
    pub global_kv_heads: u32,
    /// Size of their heads.
    pub global_head_dim: u32,
    /// For each layer the one whose keys and values it uses.
    pub layer_keys: Vec<u32>,
}

impl ModelInfo {
    /// # Safety
    /// The library must have filled it, and the model still be open.
    pub(crate) unsafe fn of(raw: &sys::stasis_model_info) -> ModelInfo {
        let layers = raw.layers as usize;
        let digests = |data| copied(data, layers).into_iter().map(Digest::of).collect();
        ModelInfo {
            architecture: text_in(&raw.architecture),
            layers: raw.layers,
            hidden: raw.hidden,
            heads: raw.heads,
            kv_heads: raw.kv_heads,
            head_dim: raw.head_dim,
            vocabulary: raw.vocabulary,
            context: raw.context,
            page_positions: raw.page_positions,
            threads: raw.threads,
            contract: raw.contract,
            end_tokens: copied(raw.end_tokens, raw.end_token_count as usize),
            layer_windows: copied(raw.layer_windows, layers),
            bos: Token::try_from(raw.bos).ok(),
            kernels: text_in(&raw.kernels),
            device: text_in(&raw.device),
            profile: text_in(&raw.profile),
            chat_template: text_in(&raw.chat_template),
            converted: raw.flags & sys::STASIS_MODEL_CONVERTED != 0,
            has_tokenizer: raw.flags & sys::STASIS_MODEL_TOKENIZER != 0,
            model: Digest::of(raw.model),
            embeddings: Digest::of(raw.embeddings),
            norms: Digest::of(raw.norms),
            head: Digest::of(raw.head),
            tokenizer: Digest::of(raw.tokenizer),
            attention: digests(raw.attention),
            mlp: digests(raw.mlp),
            weight_types: text_of(raw.weight_types),
            weight_bytes: raw.weight_bytes,
            layer_recurrent: copied(raw.layer_recurrent, layers)
                .into_iter()
                .map(|recurrent: u8| recurrent != 0)
                .collect(),
            state_bytes: raw.state_bytes,
            experts: raw.experts,
            experts_chosen: raw.experts_chosen,
            contract_recurrent: raw.contract_recurrent,
            contract_experts: raw.contract_experts,
            ignored: text_of(raw.ignored),
            mtp_bytes: raw.mtp_bytes,
            global_kv_heads: raw.global_kv_heads,
            global_head_dim: raw.global_head_dim,
            layer_keys: copied(raw.layer_keys, layers),
        }
    }
}

/// Memory that a model's sessions use, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ModelStats {
    /// None: no limit.
    pub kv_budget: Option<u64>,
    /// In pages that sessions hold.
    pub kv_used: u64,
    /// In free pages kept for reuse; within the budget, and give way.
    pub kv_cached: u64,
    /// Saved by sharing: each page counted once for every additional session that holds it.
    pub kv_shared: u64,
    /// Work space of forward passes.
    pub scratch: u64,
    /// The part of the cached bytes in pages that appends of the same tokens take again.
    pub kv_known: u64,
    /// Bytes that pages can still take; none: no limit.
    pub kv_free: Option<u64>,
    /// Limit for recurrent states.
    pub state_budget: u64,
    /// In recurrent states that sessions and the prefix cache hold.
    pub state_used: u64,
    /// In memory kept for the next states.
    pub state_cached: u64,
}

impl ModelStats {
    pub(crate) fn of(raw: &sys::stasis_model_stats) -> ModelStats {
        let limit = |bytes| if bytes == u64::MAX { None } else { Some(bytes) };
        ModelStats {
            kv_budget: limit(raw.kv_budget_bytes),
            kv_used: raw.kv_used_bytes,
            kv_cached: raw.kv_cached_bytes,
            kv_shared: raw.kv_shared_bytes,
            scratch: raw.scratch_bytes,
            kv_known: raw.kv_known_bytes,
            kv_free: limit(raw.kv_free_bytes),
            state_budget: raw.state_budget_bytes,
            state_used: raw.state_used_bytes,
            state_cached: raw.state_cached_bytes,
        }
    }
}

/// Description of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SessionInfo {
    /// Window of local layers; 0: the model has none.
    pub window: u32,
    /// Tokens in the log; the next one takes this position.
    pub position: u64,
    /// Positions it may reach.
    pub capacity: u64,
    /// Lowest position that rewind reaches without recomputing.
    pub rewind_floor: u64,
    /// Positions that local layers keep beyond their window.
    pub window_retain: u64,
    /// First position from which on windows have released nothing.
    pub window_begin: u64,
    /// Pages that only it holds.
    pub pages_own: u64,
    /// Pages that others hold too.
    pub pages_shared: u64,
    /// Bytes of all its pages.
    pub kv_bytes: u64,
    /// System text that waits for the first user turn.
    pub pending_bytes: u64,
    /// Positions that no later token sees.
    pub positions_evicted: u64,
    /// Positions taken from existing pages.
    pub tokens_reused: u64,
    /// Recurrent states that it holds: the last, and checkpoints.
    pub states: u64,
    /// Some below this one were computed under another profile, and cannot be verified; 0: none.
    pub positions_foreign: u64,
    /// Loaded with [`LoadOptions::accept_older`](crate::LoadOptions::accept_older) from a file
    /// whose last commit is damaged, or forked from such a session, and not saved since.
    pub older: bool,
}

impl SessionInfo {
    pub(crate) fn of(raw: &sys::stasis_session_info) -> SessionInfo {
        SessionInfo {
            window: raw.window,
            position: raw.position,
            capacity: raw.capacity,
            rewind_floor: raw.rewind_floor,
            window_retain: raw.window_retain,
            window_begin: raw.window_begin,
            pages_own: raw.pages_own,
            pages_shared: raw.pages_shared,
            kv_bytes: raw.kv_bytes,
            pending_bytes: raw.pending_bytes,
            positions_evicted: raw.positions_evicted,
            tokens_reused: raw.tokens_reused,
            states: raw.states,
            positions_foreign: raw.positions_foreign,
            older: raw.older != 0,
        }
    }
}

/// Contents of a snapshot file.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SnapshotInfo {
    /// Version of the file format.
    pub format: u32,
    /// Versions of the numerics contract, as the model's.
    pub contract: [u32; 3],
    /// Positions in a page of keys and values.
    pub page_positions: u32,
    /// Tokens in the log.
    pub position: u64,
    /// Bytes of the state and all commits before it.
    pub file_bytes: u64,
    /// Digest of the state, as [`Session::digest`](crate::Session::digest).
    pub digest: Digest,
    /// Root digest of the file: these 32 bytes suffice to prove it.
    pub root: Digest,
    /// Digest of the model that the state belongs to.
    pub model: Digest,
    /// One of the file's two root slots cannot be read: torn by a crash, or see `older`.
    pub damaged_root: bool,
    /// Which keys and values are kept.
    pub keep: Keep,
    /// [`Codec::Zstd`] if any keys and values are compressed.
    pub codec: Codec,
    /// Saves to this file since it was made.
    pub commits: u64,
    /// Keys and values that are kept, as numbers.
    pub kv_bytes: u64,
    /// Bytes that they take in the file.
    pub kv_stored_bytes: u64,
    /// Id of the device profile under which the session continues; empty: the contract alone.
    pub profile: String,
    /// As of [`SessionInfo`].
    pub positions_foreign: u64,
    /// The part of `file_bytes` in sections that this state does not refer to.
    pub dead_bytes: u64,
    /// The root of the last commit is damaged, and this is the state before it.
    pub older: bool,
}

impl SnapshotInfo {
    pub(crate) fn of(raw: &sys::stasis_snapshot_info) -> SnapshotInfo {
        SnapshotInfo {
            format: raw.format,
            contract: raw.contract,
            page_positions: raw.page_positions,
            position: raw.position,
            file_bytes: raw.file_bytes,
            digest: Digest::of(raw.digest),
            root: Digest::of(raw.root),
            model: Digest::of(raw.model),
            damaged_root: raw.flags & sys::STASIS_SNAPSHOT_DAMAGED_ROOT != 0,
            keep: if raw.keep == sys::STASIS_KEEP_NONE { Keep::None } else { Keep::Full },
            codec: if raw.codec == sys::STASIS_CODEC_ZSTD { Codec::Zstd } else { Codec::Raw },
            commits: raw.commits,
            kv_bytes: raw.kv_bytes,
            kv_stored_bytes: raw.kv_stored_bytes,
            profile: text_in(&raw.profile),
            positions_foreign: raw.positions_foreign,
            dead_bytes: raw.dead_bytes,
            older: raw.older != 0,
        }
    }
}
