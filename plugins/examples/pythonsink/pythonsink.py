#!/usr/bin/env python3
"""A plug-in of rowrelay in Python: it appends each message to a file.

Copy this folder, and change Sink. build.sh creates a virtual environment with the
packages of requirements.txt, and generates the modules imported below from
rowrelay_sink_v1.proto. The rest of this file is the protocol of go-plugin and
need not be changed.
"""
import base64
import datetime
import json
import logging
import os
import signal
import sys
import threading
from concurrent import futures

import grpc
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from grpc_health.v1 import health, health_pb2, health_pb2_grpc

import rowrelay_sink_v1_pb2 as pb
import rowrelay_sink_v1_pb2_grpc as rpc

MAX_REQUEST = 64 << 20  # bytes; larger messages are rejected


class Sink(rpc.SinkServicer):
    """The sink itself. Change this class."""

    path = None

    def Describe(self, request, context):
        field = pb.Field(name="path", type="string", required=True, help="The file to append to.")
        return pb.DescribeResponse(name="pythonsink", summary="Appends each message to a file.", version="1.0", fields=[field])

    def Open(self, request, context):
        self.path = request.settings.get("path")
        if not self.path:
            return pb.OpenResponse(trouble=pb.Trouble(reason=pb.CONFIG, detail="the setting path is missing"))
        try:
            self.append("")
        except OSError as error:
            return pb.OpenResponse(trouble=pb.Trouble(reason=pb.CONNECTION, detail=str(error)))
        return pb.OpenResponse(order=pb.ORDER_PREFIX, max_request_bytes=MAX_REQUEST)

    def Send(self, request, context):
        """Returns one outcome per message, in order. After a message that is not delivered, no later message of its key may be delivered."""
        outcomes, lines, refused = [], [], set()
        for message in request.messages:
            try:
                if message.key and message.key in refused:
                    outcomes.append(pb.Outcome(result=pb.UNSENT, reason=pb.BLOCKED))
                    continue
                lines.append(line(message))
                outcomes.append(pb.Outcome(result=pb.DELIVERED))
            except UnicodeDecodeError as error:
                refused.add(message.key)
                outcomes.append(pb.Outcome(result=pb.REJECT, reason=pb.INVALID, detail=f"not UTF-8: {error.reason}"))
        try:
            self.append("".join(lines))
        except OSError as error:
            down = pb.Outcome(result=pb.UNAVAILABLE, reason=pb.CONNECTION, detail=str(error))
            return pb.SendResponse(outcomes=[down] * len(request.messages))
        return pb.SendResponse(outcomes=outcomes)

    def Cancel(self, request, context):
        return pb.CancelResponse()  # a write is short and can't be cancelled

    def Close(self, request, context):
        return pb.CloseResponse()

    def append(self, text):
        with open(self.path, "a", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())  # a delivered message must survive a power cut


def line(message):
    """Returns a message as a line of JSON."""
    parts = {"message_id": message.id, "topic": message.topic, "key": message.key.decode(), "payload": None}
    parts["headers"] = {header.name: header.value.decode() for header in message.headers}
    if message.HasField("payload"):  # NULL and an empty payload are different
        del parts["payload"]
        parts["payload_base64"] = base64.b64encode(message.payload).decode()
    return json.dumps(parts) + "\n"


# The protocol of go-plugin.


class Controller(grpc.GenericRpcHandler):
    """The call with which the relay asks the process to exit."""

    def service(self, details):
        if details.method == "/plugin.GRPCController/Shutdown":
            return grpc.unary_unary_rpc_method_handler(lambda request, context: threading.Timer(0.1, leave).start() or b"")
        return None


def leave(*_):
    os._exit(0)


def follow_relay():
    """Exits when the standard input ends, because the relay is gone then."""
    while sys.stdin.buffer.read(4096):
        pass
    os._exit(1)


class Lines(logging.Formatter):
    """Formats log lines as JSON, so that the relay keeps their level."""

    def format(self, record):
        return json.dumps({"level": record.levelname, "msg": super().format(record)})


def credentials():
    """Returns gRPC credentials for this run and the certificate for the handshake line, if the relay uses TLS (AutoMTLS)."""
    trusted = os.environ.get("PLUGIN_CLIENT_CERT")
    if not trusted:
        return None, ""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "localhost")])
    now = datetime.datetime.now(datetime.timezone.utc)
    day = datetime.timedelta(days=1)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name).issuer_name(name).public_key(key.public_key()).serial_number(x509.random_serial_number())
        .not_valid_before(now - day).not_valid_after(now + 3650 * day)
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    private = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    secured = grpc.ssl_server_credentials([(private, certificate.public_bytes(pem))], trusted.encode(), require_client_auth=True)
    return secured, base64.b64encode(certificate.public_bytes(serialization.Encoding.DER)).decode().rstrip("=")


def main():
    if os.environ.get("ROWRELAY_PLUGIN") != "rowrelay-sink":
        sys.exit("This is a plug-in of rowrelay: only a relay can start it, for example rowrelay plugin check " + sys.argv[0])
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(Lines())
    logging.basicConfig(level=logging.INFO, handlers=[handler])
    signal.signal(signal.SIGTERM, leave)
    threading.Thread(target=follow_relay, daemon=True).start()

    options = [("grpc.max_receive_message_length", MAX_REQUEST)]
    server = grpc.server(futures.ThreadPoolExecutor(max_workers=8), options=options)
    rpc.add_SinkServicer_to_server(Sink(), server)
    checks = health.HealthServicer()
    checks.set("plugin", health_pb2.HealthCheckResponse.SERVING)
    health_pb2_grpc.add_HealthServicer_to_server(checks, server)
    server.add_generic_rpc_handlers((Controller(),))

    secured, certificate = credentials()
    address = os.path.join(os.environ["PLUGIN_UNIX_SOCKET_DIR"], "sink")
    if secured:
        server.add_secure_port("unix:" + address, secured)
    else:
        server.add_insecure_port("unix:" + address)
    server.start()
    print(f"1|1|unix|{address}|grpc|{certificate}", flush=True)  # print nothing before this line
    server.wait_for_termination()


if __name__ == "__main__":
    main()
