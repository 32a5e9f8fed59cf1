// Package nodeid makes the names by which processes identify each other.
package nodeid

import (
	"crypto/rand"
	"os"
	"strconv"
	"strings"

	"github.com/swarmiji/swarmiji/internal/naming"
)

// maxHost is the number of bytes of the host's name in a node id. It is small because every task
// carries the id.
const maxHost = 8

// New returns a unique node id: the beginning of the host's name, the process id and random
// letters. It is a valid name, so that a reply queue can be named after it.
func New() string {
	host, err := os.Hostname()
	if err != nil || !naming.ValidName(host) {
		host = "node"
	}
	host = strings.ToLower(host[:min(len(host), maxHost)])
	return host + "-" + strconv.Itoa(os.Getpid()) + "-" + strings.ToLower(rand.Text()[:6])
}
