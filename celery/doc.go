// Package celery connects producers and consumers with programs that use Celery in Python, over the
// same queues and result backends. Tasks go both ways, and a workflow may have steps in both
// languages:
//
//	o := celery.Options{Results: "redis://host/0", Queue: "reports"}
//	swarm, err := celery.Open(ctx, "amqp://user:password@host//", o)
//	c, err := swarm.Consumer(consumer.Config{})
//	err = render.Handle(c, func(ctx context.Context, a RenderArgs) (string, error) { ... })
//
// A Python program then calls the task by its name:
//
//	app.send_task("reports.render", args=[7], kwargs={"format": "pdf"}, queue="reports")
//
// # Arguments
//
// A Python call has positional and keyword arguments. They are bound to the fields of a struct by
// the tag celery:"position,keyword", or by the order of the fields. A handler with another argument
// takes exactly one positional argument. [Args] takes any call. See [wire.JSONArgs].
//
// # Differences
//
// docs/celery.md describes how to move task by task, which parts are carried over, and which parts
// are refused.
package celery

import "github.com/swarmiji/swarmiji/celery/wire"

// Args are the arguments of any call, as Python writes them. See [wire.Args].
type Args = wire.Args
