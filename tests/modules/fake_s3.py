# A service that answers as S3 does, in memory, for tests: it checks signatures by itself, keeps
# conditions, lists in pages, and makes trouble as it is told. Prints its port; ends with its
# standard input. A request to /_trouble sets the trouble (JSON in the body, {} for none) and begins
# the counts anew; one to /_counts returns them.
# With a certificate and its key in one file it speaks TLS.
# Usage: fake_s3.py ACCESS_KEY SECRET_KEY [SESSION_TOKEN [CERTIFICATE]]
import base64
import hashlib
import hmac
import json
import os
import socketserver
import ssl
import sys
import threading
import time
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler
from urllib.parse import parse_qs, quote, unquote, urlsplit
from xml.sax.saxutils import escape

ACCESS, SECRET, TOKEN, CERTIFICATE = (sys.argv[1:] + ["", ""])[:4]
LOCK = threading.Lock()
OBJECTS = {}  # key with its bucket: (bytes, etag, when it was put)
TROUBLE = {}
COUNTS = {"calls": 0}
STALLED = threading.Event()


def now():
    return time.time() + TROUBLE.get("ahead", 0)


def stamp(seconds):
    return time.strftime("%Y-%m-%dT%H:%M:%S.000Z", time.gmtime(seconds))


class Refusal(Exception):
    def __init__(self, status, code, message="as the test wants it"):
        super().__init__(code)
        self.status, self.code, self.message = status, code, message


def signature_of(method, path, query, headers, names, scope, body_digest):
    """What docs.aws.amazon.com says under "Signature Version 4", once more."""
    pairs = sorted((quote(name, "-_.~"), quote(value, "-_.~")) for name, values in
                   parse_qs(query, keep_blank_values=True).items() for value in values)
    lines = [method, quote(unquote(path), "/-_.~"), "&".join("=".join(pair) for pair in pairs)]
    lines += [f"{name}:{' '.join(headers[name].split())}" for name in names]
    lines += ["", ";".join(names), body_digest]
    text = "\n".join(["AWS4-HMAC-SHA256", headers["x-amz-date"], scope,
                      hashlib.sha256("\n".join(lines).encode()).hexdigest()])
    key = ("AWS4" + SECRET).encode()
    for part in scope.split("/"):
        key = hmac.new(key, part.encode(), hashlib.sha256).digest()
    return hmac.new(key, text.encode(), hashlib.sha256).hexdigest()


def check_signature(request, path, query, body):
    headers = {name.lower(): value for name, value in request.headers.items()}
    given = headers.get("authorization", "")
    try:
        scheme, rest = given.split(" ", 1)
        fields = dict(part.strip().split("=", 1) for part in rest.split(","))
        access, scope = fields["Credential"].split("/", 1)
        names = fields["SignedHeaders"].split(";")
    except (ValueError, KeyError):
        raise Refusal(403, "AccessDenied", "no signature") from None
    if scheme != "AWS4-HMAC-SHA256" or access != ACCESS:
        raise Refusal(403, "InvalidAccessKeyId")
    unsigned = [name for name in headers if name.startswith(("x-amz-", "if-", "range"))
                and name not in names]
    if names != sorted(names) or "host" not in names or unsigned:
        raise Refusal(403, "AccessDenied", f"not signed: {unsigned}")
    if headers["x-amz-content-sha256"] != hashlib.sha256(body).hexdigest():
        raise Refusal(400, "XAmzContentSHA256Mismatch")
    if headers.get("x-amz-security-token", "") != TOKEN:
        raise Refusal(403, "InvalidToken")
    made = time.strptime(headers["x-amz-date"], "%Y%m%dT%H%M%SZ")
    if abs(now() - (time.mktime(made) - time.timezone)) > 900:
        raise Refusal(403, "RequestTimeTooSkewed", "the clocks differ")
    if fields["Signature"] != signature_of(request.command, path, query, headers, names, scope,
                                           headers["x-amz-content-sha256"]):
        raise Refusal(403, "SignatureDoesNotMatch")


def check_conditions(request, key):
    if TROUBLE.get("ignores_conditions"):
        return
    there = OBJECTS.get(key)
    match, none = request.headers.get("If-Match"), request.headers.get("If-None-Match")
    if (none == "*" and there) or (match and there and there[1] != match):
        raise Refusal(412, "PreconditionFailed")
    if match and not there:
        raise Refusal(404, "NoSuchKey")


def put(request, key, body):
    """Returns the answer's body and headers."""
    source = request.headers.get("x-amz-copy-source")
    with LOCK:
        if source:
            if source[1:] not in OBJECTS:
                raise Refusal(404, "NoSuchKey")
            body = OBJECTS[source[1:]][0]
        elif body and request.headers.get("Content-MD5") != base64.b64encode(
                hashlib.md5(body).digest()).decode():
            raise Refusal(400, "BadDigest")
        check_conditions(request, key)
        etag = f'"{hashlib.md5(body).hexdigest()}"'
        OBJECTS[key] = (body, etag, now())
    if source:
        return b"<CopyObjectResult><ETag>x</ETag></CopyObjectResult>", {}
    return b"", {"ETag": etag}


def listed(bucket, query):
    def one(name, default=""):
        return query.get(name, [default])[0]
    most = min(int(one("max-keys", "1000")), TROUBLE.get("page", 1000))
    with LOCK:
        keys = sorted(key[len(bucket) + 1:] for key in OBJECTS if key.startswith(
            f"{bucket}/{one('prefix')}"))
        after = one("continuation-token")[1:]
        keys = [key for key in keys if key > after]
        rows = [f"<Contents><Key>{escape(key)}</Key><LastModified>{stamp(put_at)}</LastModified>"
                f"<ETag>{etag.replace(chr(34), '&#34;')}</ETag><Size>{len(body)}</Size></Contents>"
                for key in keys[:most] for body, etag, put_at in [OBJECTS[f"{bucket}/{key}"]]]
    more = len(keys) > most
    token = f"<NextContinuationToken>+{keys[most - 1]}</NextContinuationToken>" if more else ""
    return (f'<?xml version="1.0" encoding="UTF-8"?>\n<ListBucketResult xmlns="x"><Name>{bucket}'
            f"</Name><KeyCount>{len(rows)}</KeyCount><IsTruncated>{'true' if more else 'false'}"
            f"</IsTruncated>{token}{''.join(rows)}</ListBucketResult>").encode()


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    timeout = None

    def log_message(self, *_):
        pass

    def date_time_string(self, timestamp=None):
        return formatdate(now() if timestamp is None else timestamp, usegmt=True)

    def answer(self, status, body=b"", headers=(), cut=False):
        self.send_response(status)
        for name, value in dict(headers).items():
            self.send_header(name, value)
        size = dict(headers).get("size", len(body))
        self.send_header("Content-Length", str(size))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body[:len(body) // 2] if cut else body)
        self.wfile.flush()
        if cut:
            self.close_connection = True

    def object_of(self, key):
        with LOCK:
            if key not in OBJECTS:
                raise Refusal(404, "NoSuchKey")
            return OBJECTS[key]

    def get(self, key, number):
        body, etag, put_at = self.object_of(key)
        headers = {"ETag": etag, "Last-Modified": formatdate(put_at, usegmt=True)}
        status, ranged = 200, self.headers.get("Range")
        if ranged:
            first, last = map(int, ranged.removeprefix("bytes=").split("-"))
            if first >= len(body):
                raise Refusal(416, "InvalidRange")
            last = min(last, len(body) - 1)
            headers["Content-Range"] = f"bytes {first}-{last}/{len(body)}"
            status, body = 206, body[first:last + 1]
        if hits(number, "damage") and body:
            middle = len(body) // 2
            body = body[:middle] + bytes([body[middle] ^ 16]) + body[middle + 1:]
        self.answer(status, body, headers, cut=hits(number, "cut") and len(body) > 1)

    def serve(self, number, body):
        parts = urlsplit(self.path)
        check_signature(self, parts.path, parts.query, body)
        bucket, _, key = unquote(parts.path)[1:].partition("/")
        if bucket != "test":
            raise Refusal(404, "NoSuchBucket", "the bucket does not exist")
        whole = f"{bucket}/{key}"
        if not key and self.command == "GET":
            reply = 200, listed(bucket, parse_qs(parts.query, keep_blank_values=True)), {}
        elif self.command == "GET":
            return self.get(whole, number)
        elif self.command == "HEAD":
            content, etag, _ = self.object_of(whole)
            reply = 200, b"", {"ETag": etag, "size": len(content)}
        elif self.command == "PUT":
            reply = 200, *put(self, whole, body)
        else:
            with LOCK:
                check_conditions(self, whole)
                OBJECTS.pop(whole, None)
            reply = 204, b"", {}
        if hits(number, "lose"):  # done, and nobody hears of it
            self.close_connection = True
            return None
        return self.answer(*reply)

    def control(self, body):
        with LOCK:
            if self.path == "/_trouble":
                STALLED.set()  # those that wait are let go
                STALLED.clear()
                TROUBLE.clear()
                TROUBLE.update(json.loads(body))
                COUNTS.clear()
                COUNTS["calls"] = 0
            reply = json.dumps(COUNTS).encode()
        self.answer(200, reply)

    def handle_any(self):
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        if self.path.startswith("/_"):
            self.control(body)
            return
        with LOCK:
            COUNTS["calls"] += 1
            COUNTS[self.command] = COUNTS.get(self.command, 0) + 1
            number = COUNTS["calls"]
        try:
            if hits(number, "stall"):
                STALLED.wait(60)
                self.close_connection = True
                return
            if hits(number, "refuse"):
                raise Refusal(TROUBLE["status"], TROUBLE.get("code", "Trouble"))
            self.serve(number, body)
        except Refusal as refusal:
            text = (f'<?xml version="1.0"?><Error><Code>{refusal.code}</Code>'
                    f"<Message>{escape(refusal.message)}</Message></Error>")
            self.answer(refusal.status, text.encode())
        except (BrokenPipeError, ConnectionResetError):
            self.close_connection = True

    do_GET = do_HEAD = do_PUT = do_DELETE = do_POST = handle_any


def hits(number, what):
    """Whether this call is one that the trouble is for: "lose": 3 is the third, "lose_every": 3
    each third."""
    every = TROUBLE.get(what + "_every")
    return TROUBLE.get(what) == number or bool(every and number % every == 0)


class Server(socketserver.ThreadingTCPServer):
    daemon_threads = True
    request_queue_size = 128
    disable_nagle_algorithm = True

    def handle_error(self, request, client_address):
        """A client that does not believe the certificate leaves, as the test wants it."""
        if not isinstance(sys.exc_info()[1], ssl.SSLError):
            super().handle_error(request, client_address)


Handler.disable_nagle_algorithm = True
Handler.wbufsize = -1
server = Server(("127.0.0.1", 0), Handler)
if CERTIFICATE:
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(CERTIFICATE)
    server.socket = tls.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
threading.Thread(target=server.serve_forever, daemon=True).start()
os.write(1, f"{server.server_address[1]}\n".encode())  # at once: who reads it may go
sys.stdin.buffer.read()
os._exit(0)
