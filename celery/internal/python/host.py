"""A Celery application for tests. It runs as a worker or as a producer; both end with their input."""
import json
import os
import sys
import threading
import time
import traceback

from celery import Celery, chain, chord, group, signals, states
from celery.result import AsyncResult, GroupResult
from kombu import Exchange, Queue

BROKER, BACKEND, QUEUE = os.environ["BROKER"], os.environ["BACKEND"], os.environ["QUEUE"]
app = Celery("interop", broker=BROKER, backend=BACKEND)
app.conf.update(
    task_default_queue=QUEUE,
    accept_content=["json", "msgpack"],
    result_accept_content=["json", "msgpack"],
    result_serializer=os.environ["RESULTS"],
    broker_connection_retry_on_startup=True,
    task_track_started=True,
    worker_hijack_root_logger=False,
    result_chord_join_timeout=60,
    redis_retry_on_timeout=True,
)
lines = threading.Lock()


def say(**line):
    with lines:
        os.write(1, (json.dumps(line, default=repr) + "\n").encode())


class PaymentError(Exception):
    """An exception of the user's own module."""


@app.task(name="py.add")
def add(x, y):
    return x + y


@app.task(name="py.mul")
def mul(x, y):
    return x * y


@app.task(name="py.total")
def total(numbers):
    return sum(numbers)


@app.task(name="py.echo")
def echo(*args, **kwargs):
    return {"args": list(args), "kwargs": kwargs}


@app.task(name="py.same")
def same(value):
    return value


@app.task(name="py.kind")
def kind(value):
    return type(value).__name__


@app.task(name="py.fail")
def fail(text="broken", *more):
    raise ValueError(text, *more)


@app.task(name="py.pay")
def pay(amount):
    raise PaymentError("no cover for", amount)


@app.task(name="py.later", bind=True, max_retries=3)
def later(self, until):
    """Succeeds at retry number `until`."""
    if self.request.retries < until:
        raise self.retry(countdown=0.1, exc=RuntimeError("attempt %d" % self.request.retries))
    return self.request.retries


@app.task(name="py.about", bind=True)
def about(self, *args):
    r = self.request
    return dict(id=r.id, root=r.root_id, parent=r.parent_id, group=r.group, retries=r.retries, eta=r.eta, expires=r.expires,
                timelimit=list(r.timelimit or []), reply_to=r.reply_to, custom=(r.headers or {}).get("x-custom") or r.get("x-custom"),
                args=list(args), priority=(r.delivery_info or {}).get("priority"), origin=r.origin)


@app.task(name="py.now")
def now(*args):
    return time.time()


@app.task(name="py.note")
def note(*args):
    """Its calls are seen in the events of the worker."""
    return list(args)


@app.task(name="py.sleep")
def sleep(seconds):
    time.sleep(seconds)
    return seconds


def sig(name, *args, immutable=False, queue=None, kwargs=None, **options):
    """A signature of a task that runs in this or in another process."""
    return app.signature(name, args=args, kwargs=kwargs or {}, immutable=immutable, queue=queue or QUEUE, **options)


def outcome(result, timeout=60):
    """The end of a task as this producer sees it."""
    try:
        value, error = result.get(timeout=timeout), None
    except Exception as e:
        value, error = None, dict(type=type(e).__name__, module=type(e).__module__, args=list(e.args), text=str(e))
    return dict(value=value, error=error, state=result.state, traceback=result.traceback)


def answer(request):
    names = dict(globals())
    try:
        exec(request["code"], names)
        return dict(value=names.get("result"))
    except Exception:
        return dict(error=traceback.format_exc())


def produce():
    say(ready=True)
    for line in sys.stdin:
        say(**answer(json.loads(line)))


def work():
    def end():
        sys.stdin.read()
        os._exit(0)
    threading.Thread(target=end, daemon=True).start()

    def on(event, **more):
        def report(sender=None, **fields):
            task = fields.get("task") or sender
            request = fields.get("request") or getattr(task, "request", None)
            exception = fields.get("exception") or fields.get("reason")
            say(event=event, id=getattr(request, "id", None), name=getattr(task, "name", None) or str(sender), args=list(getattr(request, "args", None) or []),
                kwargs=dict(getattr(request, "kwargs", None) or {}), retries=getattr(request, "retries", 0),
                parent=getattr(request, "parent_id", None), root=getattr(request, "root_id", None), group=getattr(request, "group", None),
                state=fields.get("state"), result=fields.get("retval"), exception=repr(exception) if exception else None)
        return report

    handlers = dict(started=signals.task_prerun, ended=signals.task_postrun, retried=signals.task_retry, failed=signals.task_failure, revoked=signals.task_revoked)
    for name, signal in handlers.items():
        signal.connect(on(name), weak=False)
    signals.task_unknown.connect(lambda **f: say(event="unknown", id=f.get("id"), name=f.get("name")), weak=False)
    signals.worker_ready.connect(lambda **_: say(ready=True), weak=False)
    app.worker_main(["worker", "-P", "solo", "-c", "1", "-Q", QUEUE, "-n", os.environ["NODE"], "--without-gossip", "--loglevel=WARNING"])


if __name__ == "__main__":
    work() if sys.argv[1] == "worker" else produce()
