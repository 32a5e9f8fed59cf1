package testserver

import (
	"context"
	"testing"
	"time"
)

// buildTime limits the build of the NATS server, for which a start may have to wait.
const buildTime = 5 * time.Minute

// RequireNATS returns the server that all tests of this binary share. The first call starts it;
// later calls start it again if an earlier test stopped, killed or paused it. The server ends with
// the process. If the server cannot be built the test is skipped, see the package comment.
func RequireNATS(tb testing.TB) *NATS {
	tb.Helper()
	warmNATS(tb)
	return require(tb, &shared.nats, func(ctx context.Context) (*NATS, error) { return StartNATS(ctx, NATSConfig{}) })
}

// OwnNATS starts a server for one test and closes it at the end of the test.
func OwnNATS(tb testing.TB, cfg NATSConfig) *NATS {
	tb.Helper()
	warmNATS(tb)
	return own(tb, startTime, func(ctx context.Context) (*NATS, error) { return StartNATS(ctx, cfg) })
}

// OwnNATSCluster starts three joined servers for one test and closes them at the end of the test.
func OwnNATSCluster(tb testing.TB, cfg NATSConfig) *NATSCluster {
	tb.Helper()
	warmNATS(tb)
	return own(tb, 2*startTime, func(ctx context.Context) (*NATSCluster, error) { return StartNATSCluster(ctx, 3, cfg) })
}

// warmNATS builds the server's program if necessary, so that the build does not use up the time
// limit of a start.
func warmNATS(tb testing.TB) {
	tb.Helper()
	ctx, cancel := context.WithTimeout(tb.Context(), buildTime)
	defer cancel()
	if _, err := NATSProgram(ctx); err != nil {
		giveUp(tb, err)
	}
}
