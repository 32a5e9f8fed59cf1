package amqpdelay

// names builds the names of one set of delay levels. All begin with the prefix.
type names struct{ prefix string }

// Deliver returns the name of the exchange at the end of the delay levels.
func (n names) Deliver() string { return n.prefix + "delay.deliver" }

// Undeliverable returns the name of the exchange and queue for due messages without a queue.
func (n names) Undeliverable() string { return n.prefix + "undeliverable" }

// enter returns the name of the exchange to which delayed messages are published.
func (n names) enter() string { return n.prefix + "delay.enter" }

// ready returns the name of the exchange that exists when all delay levels do.
func (n names) ready() string { return n.prefix + "delay.ready" }

// level returns the name of both the exchange and the queue of a delay level, 0 to 37. Versions
// until November 2026 had levels with other bindings, named "delay.00" to "delay.37".
func (n names) level(level int) string { return n.prefix + "delay.step." + levelWord(level) }
