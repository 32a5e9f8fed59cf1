package testserver

import (
	"context"
	"testing"
	"time"
)

// buildTime bounds the build of the NATS server, which a start may have to wait for.
const buildTime = 5 * time.Minute

// RequireNATS returns the server that all tests of this binary share, started by the first call and running whatever an
// earlier test did to it. It ends with the process. Where it cannot be built the test is skipped, see the package comment.
func RequireNATS(tb testing.TB) *NATS {
	tb.Helper()
	warmNATS(tb)
	return require(tb, &shared.nats, func(ctx context.Context) (*NATS, error) { return StartNATS(ctx, NATSConfig{}) })
}

// OwnNATS starts a server for one test and closes it at the test's end.
func OwnNATS(tb testing.TB, cfg NATSConfig) *NATS {
	tb.Helper()
	warmNATS(tb)
	return own(tb, startTime, func(ctx context.Context) (*NATS, error) { return StartNATS(ctx, cfg) })
}

// OwnNATSCluster starts three joined servers for one test and closes them at the test's end.
func OwnNATSCluster(tb testing.TB, cfg NATSConfig) *NATSCluster {
	tb.Helper()
	warmNATS(tb)
	return own(tb, 2*startTime, func(ctx context.Context) (*NATSCluster, error) { return StartNATSCluster(ctx, 3, cfg) })
}

// warmNATS sees to it that the program is built before the time of a start begins.
func warmNATS(tb testing.TB) {
	tb.Helper()
	ctx, cancel := context.WithTimeout(tb.Context(), buildTime)
	defer cancel()
	if _, err := NATSProgram(ctx); err != nil {
		giveUp(tb, err)
	}
}
