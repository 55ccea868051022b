# One leg of a relay: takes a conversation from a file (or begins one), says TEXT, hears the reply,
# puts it back into the file. Prints the session's digest and the reply. The same program stands in
# bindings/c, bindings/go and bindings/rust. Usage: relay.py MODEL FILE TEXT
import sys

import stasis


def relay(path, file, text):
    model = stasis.Model(path)
    try:
        session = model.load(file)
    except FileNotFoundError:
        session = model.session()
    reply = "".join(session.say(text, max_tokens=40))
    session.save(file)
    print(f"{session.digest}\n{reply}")
    session.data["legs"] = session.data.get("legs", b"") + b"P"  # after those before
    session.save(file)


if __name__ == "__main__":
    if len(sys.argv) != 4:
        sys.exit("usage: relay.py MODEL FILE TEXT")
    try:
        relay(*sys.argv[1:])
    except stasis.Error as problem:
        print(f"relay: {problem.status.name}: {problem}", file=sys.stderr)
        sys.exit(1)
