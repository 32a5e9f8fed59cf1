package testserver

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
)

// Servers get ports below those that the kernel assigns to outgoing connections. Otherwise a client
// could be assigned the port of a server that is down for a restart.
const (
	firstPort = 20000
	lastPort  = 32000
)

// freePorts returns n different ports on which no process listens. It reserves them until this
// process ends. Other test processes skip reserved ports, even while a killed server or a cut proxy
// does not listen on them.
func freePorts(n int) ([]int, error) {
	// All test processes share this directory, whatever their TMPDIR is.
	dir := filepath.Join("/tmp", fmt.Sprintf("swarmiji-ports-%d", os.Getuid()))
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("no place to keep count of ports: %w", err)
	}
	var ports []int
	for range 100 * n {
		port := firstPort + rand.IntN(lastPort-firstPort)
		if !reserve(filepath.Join(dir, fmt.Sprint(port))) || !unused(port) {
			continue
		}
		if ports = append(ports, port); len(ports) == n {
			return ports, nil
		}
	}
	return nil, errors.New("no free ports")
}

// unused reports whether no process listens on a port.
func unused(port int) bool {
	l, err := net.Listen("tcp", address(port))
	if err != nil {
		return false
	}
	return l.Close() == nil
}
