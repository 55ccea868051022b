# Completion of `stasis` for bash. It asks the command itself, whose --help says which options there
# are and what each takes: FILE, MODEL and DIR are paths, a|b is one of these words.

_stasis_words() { # words to choose from
    mapfile -t COMPREPLY < <(compgen -W "$1" -- "$word")
}

_stasis_value() { # the subcommand's help, the option: completes the value that the option takes
    case $2 in
        --chat-template) _stasis_words "gemma chatml zephyr llama2 llama3 mistral phi3" ;;
        --device) _stasis_words "cpu cuda" ;;
        --profile) _stasis_words "contract device" ;;
        --kernels) _stasis_words "reference avx2 avx512 avx512vnni avx512bf16 amx" ;;
        --messages) compopt -o default ;;
        --type)
            _stasis_words "F16 BF16 Q8_0 Q4_0 Q4_1 Q5_0 Q5_1 Q4_K Q5_K Q6_K Q4_K_M Q5_K_M Q2_K
                Q3_K Q3_K_M Q3_K_L IQ4_NL IQ4_XS MXFP4_MOE"
            ;;
        *)
            case $(sed -nE "s/^  $2 ([^ ]+).*/\1/p" <<<"$1") in
                *\|*) _stasis_words "$(sed -nE "s/^  $2 ([^ ]+).*/\1/p" <<<"$1" | tr '|' ' ')" ;;
                FILE | MODEL | DIR) compopt -o default ;;
            esac
            ;;
    esac
}

_stasis() {
    local word=$2 before=$3 subcommand=${COMP_WORDS[1]} help
    COMPREPLY=()
    if [ "$COMP_CWORD" -eq 1 ]; then
        help=$("$1" --help 2>/dev/null </dev/null)
        if [[ $word == -* ]]; then
            _stasis_words "-h --help --version"
        else
            _stasis_words "$(sed -nE '/^Subcommands:/,$s/^  ([a-z]+) .*/\1/p' <<<"$help")"
        fi
        return
    fi
    if [ "$word" = = ]; then # the shell takes --name=value apart
        word=
    elif [ "$before" = = ]; then
        before=${COMP_WORDS[COMP_CWORD - 2]}
    fi
    help=$("$1" "$subcommand" --help 2>/dev/null </dev/null)
    if [[ $before == -* ]] && grep -qE "^  $before [^ ]*[^ :]( |$)" <<<"$help" 2>/dev/null; then
        _stasis_value "$help" "$before"
    elif [[ $word == -* ]]; then
        _stasis_words "-h --help $(sed -nE 's/^  (-[^ ,]+)( .*)?$/\1/p' <<<"$help")"
    elif [ "$subcommand" = synth ] && [ "$COMP_CWORD" -eq 2 ]; then
        _stasis_words "$(sed -nE '/^Shapes:/{s/^Shapes:|[,.]$//g;s/, / /g;p}' <<<"$help")"
    else
        compopt -o default
    fi
}

complete -F _stasis stasis
