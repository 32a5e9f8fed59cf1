package control

import (
	"context"
	"sync"
)

// Service serves commands for a node in the protocol of another system. A consumer starts those of
// consumer.Config.ControlServices. The [Server] of this package is configured apart from them.
type Service interface {
	// Start begins to serve commands for n on goroutines of the service. It may wait a few seconds for
	// its server; the end of ctx does not end the service. Commands wait until serve is called, once.
	// end ends the service and waits for its goroutines; serve may not have been called.
	//
	// A failure must not stop the node: the service logs it. n may be any [Node] with its optional
	// interfaces, such as [Revoker].
	Start(ctx context.Context, n Node) (serve, end func())
}

// Start starts s, which may be nil, and all services for n at once. serve and end are those of all
// of them. It returns when each has started.
func Start(ctx context.Context, n Node, s *Server, services []Service) (serve, end func()) {
	serves, ends := make([]func(), len(services)+1), make([]func(), len(services)+1)
	var started sync.WaitGroup
	started.Go(func() { serves[0], ends[0] = s.Start(ctx) })
	for i, one := range services {
		started.Go(func() { serves[i+1], ends[i+1] = one.Start(ctx, n) })
	}
	started.Wait()
	return func() { eachOf(serves) }, func() { eachOf(ends) }
}

// eachOf calls all functions at once and waits for them.
func eachOf(all []func()) {
	var done sync.WaitGroup
	for _, f := range all {
		done.Go(f)
	}
	done.Wait()
}
