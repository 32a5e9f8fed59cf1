package testserver

import (
	"errors"
	"math/rand/v2"
	"net"
)

// Servers get ports below those that the kernel gives to outgoing connections: while a server is down for a restart no
// client of it can happen to be given its port.
const (
	firstPort = 20000
	lastPort  = 32000
)

// freePorts returns n different ports on which nothing listens. Another process may take one before the server does, so
// a start that fails is tried again with others.
func freePorts(n int) ([]int, error) {
	var ports []int
	for range 100 * n {
		port := firstPort + rand.IntN(lastPort-firstPort)
		l, err := net.Listen("tcp", address(port))
		if err != nil {
			continue
		}
		defer func() { _ = l.Close() }() // held until all are found, so that they differ
		if ports = append(ports, port); len(ports) == n {
			return ports, nil
		}
	}
	return nil, errors.New("no free ports")
}
