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
}
