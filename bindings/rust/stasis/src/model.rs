//! Models: opened once, shared by any number of sessions and threads.
use crate::cancel::{raw_ms, raw_of, Cancel};
use crate::error::{check, Error, Result};
use crate::guard::{progress, Guard, ProgressFn};
use crate::info::{ModelInfo, ModelStats};
use crate::raw::{c_path, c_text, fill, pointer_to, sized, text_from};
use crate::{model_files, threads, ModelFiles, Sampling, Threads, Token};
use stasis_sys as sys;
use std::alloc::{GlobalAlloc, Layout};
use std::ffi::CString;
use std::fs::File;
use std::mem::size_of;
use std::os::raw::{c_char, c_void};
use std::os::unix::io::AsRawFd;
use std::path::Path;
use std::ptr::{self, NonNull};
use std::sync::Arc;
use std::time::Duration;

/// An opened model. Clones are the same model; it stays open as long as one of them or a session
/// lives, and its files must not be changed as long.
///
/// ```
/// fn usable_from_any_thread<T: Clone + Send + Sync>() {}
/// usable_from_any_thread::<stasis::Model>();
/// ```
#[derive(Clone)]
pub struct Model(Arc<Handle>);

struct Handle {
    raw: NonNull<sys::stasis_model>,
    vocabulary: usize,
}

// SAFETY: "Models and cancel handles may be used from any number of threads at once"; an allocator
// is Send and Sync.
unsafe impl Send for Handle {}
unsafe impl Sync for Handle {}

impl Handle {
    fn of(raw: *mut sys::stasis_model) -> Result<Handle> {
        let raw = NonNull::new(raw).expect("a model that was opened");
        let mut handle = Handle { raw, vocabulary: 0 };
        handle.vocabulary = info_of(raw)?.vocabulary as usize;
        Ok(handle)
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        // SAFETY: the only owner; sessions keep what they need.
        unsafe { sys::stasis_model_close(self.raw.as_ptr()) }
    }
}

/// How a model is opened.
#[derive(Default)]
pub struct ModelOptions<'a> {
    /// That compute, the caller's included; 0: one per core.
    pub threads: u32,
    /// Compute in place of threads of the model's own; `threads` must then be 0.
    pub thread_pool: Option<&'a Threads>,
    /// None: "cpu".
    pub device: Option<&'a str>,
    /// None: the best that the machine runs; all give the same bits.
    pub kernels: Option<&'a str>,
    /// "contract" or, faster and to bits of its own, "device"; none: the contract.
    pub profile: Option<&'a str>,
    /// No file stays mapped: the model's files may change, or be cut short, once it is open.
    pub copy_weights: bool,
    /// Reads and hashes all weights, whatever digests an earlier process has left in the user's
    /// cache directory.
    pub verify_weights: bool,
    /// Limit for the KV pages of all sessions together; 0: no limit.
    pub kv_budget_bytes: u64,
    /// Limit for the recurrent states of all sessions together; 0: 512 MiB.
    pub state_budget_bytes: u64,
    /// None: recognised from the model's files.
    pub chat_template: Option<&'a str>,
    /// "2026-01-02", for chat templates that print today's date; none: not known.
    pub date: Option<&'a str>,
    /// The source of KV pages, copied weights and workspaces; none: the C heap. Used from any
    /// thread, dropped after the model and all its sessions.
    pub allocator: Option<Box<dyn GlobalAlloc + Send + Sync>>,
    /// Ends the call.
    pub cancel: Option<&'a Cancel>,
    /// Ends the call after this time with [`Status::Timeout`](crate::Status::Timeout).
    pub timeout: Option<Duration>,
    /// Gets done and total bytes of weights; a break stops.
    pub progress: Option<ProgressFn<'a>>,
}

/// How a text becomes tokens.
#[derive(Clone, Copy, Debug, Default)]
pub struct Tokenize {
    /// Begin with the beginning-of-sequence token.
    pub bos: bool,
    /// Markers in the text are special tokens; else plain text.
    pub special: bool,
}

/// How tokens become a text.
#[derive(Clone, Copy, Debug, Default)]
pub struct Detokenize {
    /// Special tokens give their marker; without it, nothing.
    pub special: bool,
    /// As in the middle of a text: keep a leading space.
    pub middle: bool,
    /// Spell one token as the vocabulary does.
    pub piece: bool,
}

/// Whether the prompt for a reply follows a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reply {
    /// It does: the model's turn is next.
    Prompt,
    /// It does not.
    None,
}

/// One message of a conversation.
#[derive(Clone, Copy, Debug)]
pub struct Message<'a> {
    /// "system", "user", "assistant", or what else the template knows.
    pub role: &'a str,
    /// Text of the message.
    pub text: &'a str,
}

type Allocator = Box<dyn GlobalAlloc + Send + Sync>;

// Nothing is asked of an allocator but what the caller of its unsafe trait may rely on: layouts
// that are not empty, and no panic.
unsafe extern "C" fn allocate(user: *mut c_void, size: usize, alignment: usize) -> *mut c_void {
    match Layout::from_size_align(size.max(1), alignment) {
        Ok(layout) => (*user.cast::<Allocator>()).alloc(layout).cast(),
        Err(_) => ptr::null_mut(),
    }
}

unsafe extern "C" fn deallocate(user: *mut c_void, memory: *mut c_void, size: usize, align: usize) {
    if !memory.is_null() {
        let layout = Layout::from_size_align_unchecked(size.max(1), align);
        (*user.cast::<Allocator>()).dealloc(memory.cast(), layout);
    }
}

unsafe extern "C" fn release(user: *mut c_void) {
    drop(Box::from_raw(user.cast::<Allocator>()));
}

impl Model {
    /// Opens a Hugging Face directory or a GGUF file.
    pub fn open(path: impl AsRef<Path>, options: ModelOptions<'_>) -> Result<Model> {
        let path = c_path(path.as_ref())?;
        // SAFETY: a zero-terminated path.
        Model::open_by(options, |options, raw, error| unsafe {
            sys::stasis_model_open(path.as_ptr(), options, raw, error)
        })
    }

    /// Opens a model whose files `files` gives: the GGUF file `name`, or for none those of a
    /// Hugging Face directory. The weights are copied to memory. If a read fails, its error comes
    /// back as itself ([`Error::io`]).
    pub fn open_files(
        files: &mut dyn ModelFiles,
        name: Option<&str>,
        options: ModelOptions<'_>,
    ) -> Result<Model> {
        let name = name.map(|name| c_text(name, "name")).transpose()?;
        let mut guard = model_files::guard(files);
        let source = model_files::source(&mut guard);
        // SAFETY: a struct with its size, a zero-terminated name or none; the guard lives longer.
        let opened = Model::open_by(options, |options, raw, error| unsafe {
            sys::stasis_model_open_source(&source, pointer_to(&name), options, raw, error)
        });
        guard.finish(opened)
    }

    /// Opens the GGUF file that `file` is, wherever its offset is. It needs no name, and may be
    /// closed afterwards.
    pub fn open_file(file: &File, options: ModelOptions<'_>) -> Result<Model> {
        // SAFETY: an open descriptor.
        Model::open_by(options, |options, raw, error| unsafe {
            sys::stasis_model_open_descriptor(file.as_raw_fd(), options, raw, error)
        })
    }

    fn open_by(
        options: ModelOptions<'_>,
        call: impl FnOnce(
            *const sys::stasis_model_options,
            *mut *mut sys::stasis_model,
            *mut sys::stasis_error,
        ) -> sys::stasis_status,
    ) -> Result<Model> {
        let text = |text: Option<&str>, name| text.map(|text| c_text(text, name)).transpose();
        let device = text(options.device, "device")?;
        let kernels = text(options.kernels, "kernels")?;
        let profile = text(options.profile, "profile")?;
        let chat_template = text(options.chat_template, "chat_template")?;
        let date = text(options.date, "date")?;
        // Boxed, because it is two pointers wide.
        let user = options.allocator.map(|own| Box::into_raw(Box::new(own)).cast::<c_void>());
        let allocator = sys::stasis_allocator {
            user: user.unwrap_or(ptr::null_mut()),
            allocate: Some(allocate),
            deallocate: Some(deallocate),
            release: Some(release),
            ..sized()
        };
        let mut guard = Guard::<ProgressFn<'_>>::new(options.progress);
        let raw_options = sys::stasis_model_options {
            threads: options.threads,
            thread_pool: threads::raw_of(options.thread_pool),
            device: pointer_to(&device),
            kernels: pointer_to(&kernels),
            profile: pointer_to(&profile),
            copy_weights: options.copy_weights.into(),
            verify_weights: options.verify_weights.into(),
            kv_budget_bytes: options.kv_budget_bytes,
            state_budget_bytes: options.state_budget_bytes,
            chat_template: pointer_to(&chat_template),
            date: pointer_to(&date),
            allocator: if user.is_some() { &allocator } else { ptr::null() },
            cancel: raw_of(options.cancel),
            timeout_ms: raw_ms(options.timeout),
            progress: guard.is_some().then_some(progress),
            progress_user: guard.user(),
            ..sized()
        };
        let mut raw = ptr::null_mut();
        // Everything that is pointed to outlives the call; the allocator is owned by the model from
        // then on.
        let result = check(|error| call(&raw_options, &mut raw, error));
        if let (Err(_), Some(user)) = (&result, user) {
            // SAFETY: only a successful call takes the allocator.
            unsafe { release(user) };
        }
        // Owned before a panic may pass.
        let model = result.and_then(|()| Handle::of(raw));
        guard.resume();
        Ok(Model(Arc::new(model?)))
    }

    /// Describes the model.
    pub fn info(&self) -> Result<ModelInfo> {
        info_of(self.0.raw)
    }

    /// Reports the memory that its sessions use at this moment.
    pub fn stats(&self) -> Result<ModelStats> {
        let mut stats = sized();
        // SAFETY: a living model and a struct with its size.
        check(|error| unsafe { sys::stasis_model_get_stats(self.raw(), &mut stats, error) })?;
        Ok(ModelStats::of(&stats))
    }

    /// How its own files say that its tokens be drawn; `stasis_generate.h` says which of their
    /// keys are read, and what is meant where they say nothing.
    pub fn recommended_sampling(&self) -> Result<Sampling> {
        let mut sampling = sized();
        // SAFETY: a living model and a struct with its size.
        check(|error| unsafe {
            sys::stasis_model_recommended_sampling(self.raw(), &mut sampling, error)
        })?;
        // SAFETY: this model lives.
        Ok(unsafe { Sampling::of(&sampling) })
    }

    /// The tokens of a text.
    pub fn tokenize(&self, text: &str, how: Tokenize) -> Result<Vec<Token>> {
        let flags = if how.bos { sys::STASIS_TOKENIZE_BOS } else { 0 }
            | if how.special { sys::STASIS_TOKENIZE_SPECIAL } else { 0 };
        let data = text.as_ptr().cast::<c_char>();
        // SAFETY: a text with its length, a buffer with its capacity.
        fill(|tokens, capacity, count, error| unsafe {
            let length = text.len();
            sys::stasis_model_tokenize(
                self.raw(),
                data,
                length,
                flags,
                tokens,
                capacity,
                count,
                error,
            )
        })
    }

    /// The bytes of tokens: UTF-8 that may be incomplete where a character is split across tokens.
    pub fn detokenize(&self, tokens: &[Token], how: Detokenize) -> Result<Vec<u8>> {
        let flags = if how.special { sys::STASIS_DETOKENIZE_SPECIAL } else { 0 }
            | if how.middle { sys::STASIS_DETOKENIZE_MIDDLE } else { 0 }
            | if how.piece { sys::STASIS_DETOKENIZE_PIECE } else { 0 };
        let (data, count) = (tokens.as_ptr(), tokens.len());
        // SAFETY: an array with its count, a buffer with its capacity.
        fill(|text: *mut u8, capacity, length, error| unsafe {
            let text = text.cast();
            sys::stasis_model_detokenize(
                self.raw(),
                data,
                count,
                flags,
                text,
                capacity,
                length,
                error,
            )
        })
    }

    /// A whole conversation through the model's chat template.
    pub fn render(&self, messages: &[Message<'_>], reply: Reply) -> Result<String> {
        let roles: Vec<CString> =
            messages.iter().map(|message| c_text(message.role, "role")).collect::<Result<_>>()?;
        let raw: Vec<sys::stasis_message> = messages
            .iter()
            .zip(&roles)
            .map(|(message, role)| sys::stasis_message {
                role: role.as_ptr(),
                text: message.text.as_ptr().cast(),
                length: message.text.len(),
                ..sized()
            })
            .collect();
        let flags = if reply == Reply::Prompt { sys::STASIS_RENDER_REPLY } else { 0 };
        // SAFETY: an array with its stride and count, a buffer with its capacity.
        let text = fill(|text: *mut u8, capacity, length, error| unsafe {
            sys::stasis_model_render(
                self.raw(),
                raw.as_ptr(),
                size_of::<sys::stasis_message>(),
                raw.len(),
                flags,
                text.cast(),
                capacity,
                length,
                error,
            )
        })?;
        Ok(text_from(text))
    }

    /// A conversation in JSON, with its tools and switches (`stasis_chat.h`), through the template
    /// in the model's own files.
    pub fn render_chat(&self, conversation: &str, reply: Reply) -> Result<String> {
        let flags = if reply == Reply::Prompt { sys::STASIS_CHAT_REPLY } else { 0 };
        let (data, size) = (conversation.as_ptr().cast(), conversation.len());
        // SAFETY: a text with its length, a buffer with its capacity.
        let text = fill(|text: *mut u8, capacity, length, error| unsafe {
            sys::stasis_model_render_chat(
                self.raw(),
                data,
                size,
                flags,
                text.cast(),
                capacity,
                length,
                error,
            )
        })?;
        Ok(text_from(text))
    }

    pub(crate) fn raw(&self) -> *mut sys::stasis_model {
        self.0.raw.as_ptr()
    }

    pub(crate) fn vocabulary(&self) -> usize {
        self.0.vocabulary
    }
}

fn info_of(raw: NonNull<sys::stasis_model>) -> Result<ModelInfo> {
    let mut info = sized();
    // SAFETY: a living model and a struct with its size; what it points to lives with the model.
    unsafe {
        check(|error| sys::stasis_model_get_info(raw.as_ptr(), &mut info, error))?;
        Ok(ModelInfo::of(&info))
    }
}

impl std::fmt::Debug for Model {
    fn fmt(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut shown = to.debug_struct("Model");
        match self.info() {
            Ok(info) => shown.field("architecture", &info.architecture).field("model", &info.model),
            Err(error) => shown.field("error", &Error::to_string(&error)),
        };
        shown.finish()
    }
}
