package archtest

// celeryLayers are the rows of Celery and of what its adapters share with those of RabbitMQ. They
// come before those of layers.
var celeryLayers = []rule{
	{
		"L2",
		[]string{"internal/amqpdelay", "internal/amqpdead"},
		[]string{"broker", "internal/amqpconn", "@leaves"},
		"all brokers over RabbitMQ share the queues in which messages wait, and the reading of dead letters",
	},
	{
		"L2",
		[]string{"internal/amqpreplies"},
		[]string{"resultstore", "task", "internal/amqpconn", "@connects", "@leaves"},
		"all stores over RabbitMQ share the reply queues",
	},
	{
		"L2",
		[]string{"celery/wire"},
		[]string{"task", "broker", "serializer", "serializer/msgpack", "resultstore", "internal/wire", "@leaves"},
		"the messages and results of another protocol are values of the ports, and nothing here sends them",
	},
	{
		"L3",
		[]string{"celery/amqp"},
		[]string{"broker", "resultstore", "serializer", "task", "celery/wire", "internal/amqpdead", "internal/amqpdelay", "internal/amqpreplies", "@connects", "@conns", "@leaves"},
		"an adapter knows its ports and the form of its results, and never another adapter",
	},
	{
		"L5",
		[]string{"bench/celery"},
		[]string{"task", "broker", "serializer", "router", "producer", "consumer", "celery/amqp", "celery/wire", "@connects", "internal/testserver"},
		"it measures the adapters beside Python, on a server of its own",
	},
	{
		"L3",
		[]string{"celery/control"},
		[]string{"events", "control", "task", "internal/glob", "@leaves"},
		"Celery's events and commands, over a transport that an adapter gives",
	},
	{
		"L3",
		[]string{"celery/amqpcontrol"},
		[]string{"celery/control", "events", "@connects", "@conns"},
		"the adapter of a transport knows its port and its client",
	},
	{
		"L3",
		[]string{"celery/redis"},
		[]string{"resultstore", "task", "serializer", "celery/wire", "internal/wire", "@conns", "@leaves"},
		"an adapter knows its own port and never another adapter",
	},
	{
		"L5",
		[]string{"celery"},
		[]string{"task", "broker", "resultstore", "serializer", "serializer/msgpack", "router", "middleware", "events", "control", "producer", "consumer", "celery/wire", "celery/amqp", "celery/redis", "celery/control", "celery/amqpcontrol", "connect/amqpconnect"},
		"it wires Celery's adapters into producers and consumers, as open does for the others",
	},
	{
		"test",
		[]string{"celery/internal/python"},
		[]string{"internal/testserver"},
		"it runs the Python programs of tests",
	},
}
