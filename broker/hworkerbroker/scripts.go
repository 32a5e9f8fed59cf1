package hworkerbroker

import (
	_ "embed"

	"github.com/swarmiji/swarmiji/internal/redisconn"
)

// Each script's file begins with a description of the keys that it reads and writes and of its
// answer.
var (
	//go:embed lua/stamp.lua
	stampLua string
	//go:embed lua/take.lua
	takeLua string
	//go:embed lua/settle.lua
	settleLua string
	//go:embed lua/hold.lua
	holdLua string
	//go:embed lua/monitor.lua
	monitorLua string
	//go:embed lua/push.lua
	pushLua string
	//go:embed lua/fail.lua
	failLua string
	//go:embed lua/drop.lua
	dropLua string
	//go:embed lua/purge.lua
	purgeLua string
	//go:embed lua/show.lua
	showLua string
	//go:embed lua/destroy.lua
	destroyLua string
)

// scripts holds the scripts of the adapter. A script is sent once and then called by its hash.
type scripts struct {
	take, settle, hold, monitor, push, fail, drop, purge, show, destroy *redisconn.Script
}

// newScripts returns the scripts. It sends nothing to the server.
func newScripts() scripts {
	return scripts{
		take:    redisconn.NewScript(stampLua + takeLua),
		settle:  redisconn.NewScript(stampLua + settleLua),
		hold:    redisconn.NewScript(holdLua),
		monitor: redisconn.NewScript(stampLua + monitorLua),
		push:    redisconn.NewScript(pushLua),
		fail:    redisconn.NewScript(stampLua + failLua),
		drop:    redisconn.NewScript(dropLua),
		purge:   redisconn.NewScript(purgeLua),
		show:    redisconn.NewScript(showLua),
		destroy: redisconn.NewScript(destroyLua),
	}
}
