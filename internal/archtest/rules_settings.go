package archtest

// settingsLayers are the rows of the stored operations.
var settingsLayers = []rule{
	{
		"suite",
		[]string{"settings/settingstest"},
		[]string{"settings", "internal/suite"},
		"a suite knows its port and no adapter, so that every adapter can be held to it",
	},
	{
		"L2",
		[]string{"settings"},
		[]string{"task", "@leaves"},
		"what is set is values of its own; which consumer follows them is not its concern",
	},
	{
		"L3",
		[]string{"settings/eventsettings"},
		[]string{"settings", "events", "task", "@leaves"},
		"it stores values on any bus that retains events, and so knows the port of the buses",
	},
	{
		"L3",
		[]string{"settings/*"},
		[]string{"settings", "task", "@connects", "@conns", "@leaves"},
		"an adapter knows its own port and never another adapter; of task it takes the Backoff",
	},
	{
		"L3",
		[]string{"consumer/internal/steer"},
		[]string{"task", "broker", "middleware", "limit", "settings", "consumer/internal/intake", "@leaves"},
		"what is paused and limited follows from the settings; how a message obeys is the consumer's",
	},
	{
		"L3",
		[]string{"consumer/internal/steps"},
		[]string{"task", "broker", "consumer/internal/workflow", "internal/guard", "@leaves"},
		"how a step is repeated does not depend on what it does",
	},
	{
		"L3",
		[]string{"consumer/internal/answers"},
		[]string{"task", "broker", "serializer", "deferral", "revoke", "consumer/internal/intake", "consumer/internal/steps", "consumer/internal/wakes", "internal/wire", "@leaves"},
		"which deferrals come is decided by their store; how they are settled is the consumer's",
	},
}
