package archtest

import "slices"

// allLayers returns the rows of all files, in the order in which they count.
func allLayers() []rule {
	return slices.Concat(celeryLayers, commandLayers, settingsLayers, inspecting, historyLayers, layers)
}

// historyLayers are the rows of the history of tasks. They come before those of layers.
var historyLayers = []rule{
	{
		"L2",
		[]string{"history"},
		[]string{"task", "events", "@leaves"},
		"it folds the events of any bus into records; where they are kept is handed in",
	},
	{
		"suite",
		[]string{"history/historytest"},
		[]string{"history", "task", "events"},
		"a suite knows its port and no adapter, so that every adapter can be held to it",
	},
	{
		"L3",
		[]string{"history/*"},
		[]string{"history", "task", "sqldb", "internal/sqlconn", "@leaves"},
		"an adapter knows its own port and never another adapter",
	},
}
