// Package nodeid makes the names by which processes know each other.
package nodeid

import (
	"crypto/rand"
	"os"
	"strconv"
	"strings"

	"github.com/swarmiji/swarmiji/internal/keyset"
)

// maxHost is how much of the host's name goes into a node id: it travels in every task.
const maxHost = 8

// New returns a node id that no other producer or consumer has: the beginning of the host's name, the process id and
// random letters. It is a valid name, so that a reply queue can be called after it.
func New() string {
	host, err := os.Hostname()
	if err != nil || !keyset.ValidName(host) {
		host = "node"
	}
	host = strings.ToLower(host[:min(len(host), maxHost)])
	return host + "-" + strconv.Itoa(os.Getpid()) + "-" + strings.ToLower(rand.Text()[:6])
}
