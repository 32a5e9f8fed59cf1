"""The Python side: a Celery worker, or a producer that prints how long its submissions took."""
import os
import sys
import time

from celery import Celery

app = Celery("bench", broker=os.environ["BENCH_URL"], backend="rpc://")
app.conf.update(task_default_queue=os.environ["BENCH_QUEUE"], worker_send_task_events=False)


@app.task(name="bench.add")
def add(x, y):
    return x + y


if __name__ == "__main__":
    n = int(sys.argv[1])
    add.apply_async((1, 2), ignore_result=True)  # connects
    begun = time.monotonic()
    for i in range(n):
        add.apply_async((1, i), ignore_result=True)
    print(time.monotonic() - begun)
