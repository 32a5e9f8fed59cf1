package testserver

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
)

// Servers get ports below those that the kernel gives to outgoing connections: while a server is down for a restart no
// client of it can happen to be given its port.
const (
	firstPort = 20000
	lastPort  = 32000
)

// freePorts returns n different ports on which nothing listens. They stay this process's until it ends: test processes that
// run beside it pass them by, also while a killed server, or a proxy that is cut, does not listen on them.
func freePorts(n int) ([]int, error) {
	dir := filepath.Join(os.TempDir(), fmt.Sprintf("swarmiji-ports-%d", os.Getuid()))
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

// unused reports whether nothing listens on a port.
func unused(port int) bool {
	l, err := net.Listen("tcp", address(port))
	if err != nil {
		return false
	}
	return l.Close() == nil
}
