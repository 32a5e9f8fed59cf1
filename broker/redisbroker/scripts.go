package redisbroker

import (
	"embed"
	"fmt"
	"slices"
	"strings"

	"github.com/swarmiji/swarmiji/internal/redisconn"
)

//go:embed lua/*.lua
var sources embed.FS

// scripts are what the server executes. Each file says what it takes and returns.
type scripts struct {
	declare, enqueue, subscribe, renew, claim, ack, release, leave, bury, retry *redisconn.Script
	find, update, stats, purge, requeue, dead, purgeDead                        *redisconn.Script
}

func loadScripts() (*scripts, error) {
	s := &scripts{}
	for name, to := range map[string]**redisconn.Script{
		"declare": &s.declare, "enqueue": &s.enqueue, "subscribe": &s.subscribe, "renew": &s.renew, "claim": &s.claim,
		"ack": &s.ack, "release": &s.release, "leave": &s.leave, "bury": &s.bury, "retry": &s.retry, "find": &s.find,
		"update": &s.update, "stats": &s.stats, "purge": &s.purge, "requeue": &s.requeue, "dead": &s.dead,
		"purgedead": &s.purgeDead,
	} {
		src, err := source(name)
		if err != nil {
			return nil, err
		}
		*to = redisconn.NewScript(src)
	}
	return s, nil
}

// source is a script's text with the shared functions that it uses after its first line, which tells the server under which
// conditions it may run.
func source(name string) (string, error) {
	lib, err := sources.ReadFile("lua/lib.lua")
	if err != nil {
		return "", fmt.Errorf("redisbroker: %w", err)
	}
	text, err := sources.ReadFile("lua/" + name + ".lua")
	if err != nil {
		return "", fmt.Errorf("redisbroker: %w", err)
	}
	first, rest, _ := strings.Cut(string(text), "\n")
	return first + "\n" + used(string(lib), rest) + rest, nil
}

// used returns the parts of the library that a text uses, by itself or through others, in their order. Each part but the first
// is a function, and stands after what it uses.
func used(lib, text string) string {
	head, rest, _ := strings.Cut(lib, "\n\n")
	parts := strings.Split(rest, "\n\n")
	kept := ""
	for _, part := range slices.Backward(parts) {
		_, after, _ := strings.Cut(part, "local function ")
		name, _, _ := strings.Cut(after, "(")
		if strings.Contains(text+kept, name+"(") {
			kept = part + "\n" + kept
		}
	}
	return head + "\n" + kept
}
