"""A Celery application and a shell of its command line, for tests.

As a program it reads lines of JSON, each a list of arguments of the program "celery", and writes a
line of JSON with the output and the status of each. It ends with its input."""
import contextlib
import io
import json
import os
import sys

from celery import Celery

app = Celery("ctl", broker=os.environ["BROKER"], backend="rpc://")
app.conf.update(task_default_queue=os.environ["QUEUE"], task_send_sent_event=True)


@app.task(name="py.add")
def add(x, y):
    return x + y


@app.task(name="py.fail")
def fail(text):
    raise ValueError(text)


def main():
    from celery.bin.celery import celery as command

    for line in sys.stdin:
        args = json.loads(line)
        out, status = io.StringIO(), 0
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
            try:
                if args[0] == "send":  # not a command of celery
                    print(app.send_task(args[1], json.loads(args[2])).id)
                else:
                    command.main(["-A", "app"] + args, standalone_mode=False)
            except SystemExit as e:
                status = e.code
            except Exception as e:
                print(type(e).__name__, getattr(e, "message", e))
                status = 1
        os.write(1, (json.dumps({"out": out.getvalue(), "status": status}) + "\n").encode())


if __name__ == "__main__":
    sys.modules["app"] = sys.modules["__main__"]
    main()
