package testserver

import (
	"context"
	"testing"
)

// RequireRedis returns the server that all tests of this binary share. The first call starts it;
// later calls start it again if an earlier test stopped, killed or paused it. The server ends with
// the process. Without Redis the test is skipped, see the package comment.
func RequireRedis(tb testing.TB) *Redis {
	tb.Helper()
	return require(tb, &shared.redis, func(ctx context.Context) (*Redis, error) { return StartRedis(ctx, RedisConfig{}) })
}

// OwnRedis starts a server for one test and closes it at the end of the test.
func OwnRedis(tb testing.TB, cfg RedisConfig) *Redis {
	tb.Helper()
	return own(tb, startTime, func(ctx context.Context) (*Redis, error) { return StartRedis(ctx, cfg) })
}

// OwnRedisReplica starts a server and its replica for one test and closes both at the end of the
// test.
func OwnRedisReplica(tb testing.TB, cfg RedisConfig) *RedisPair {
	tb.Helper()
	return own(tb, startTime, func(ctx context.Context) (*RedisPair, error) { return StartRedisReplica(ctx, cfg) })
}

// OwnRedisSentinel starts a server, its replica and a sentinel for one test and closes them at the
// end of the test.
func OwnRedisSentinel(tb testing.TB, cfg RedisConfig) *RedisSentinel {
	tb.Helper()
	return own(tb, startTime, func(ctx context.Context) (*RedisSentinel, error) { return StartRedisSentinel(ctx, cfg) })
}

// OwnRedisCluster starts a Redis Cluster of three nodes for one test and closes it at the end of
// the test.
func OwnRedisCluster(tb testing.TB, cfg RedisConfig) *RedisCluster {
	tb.Helper()
	return own(tb, startTime, func(ctx context.Context) (*RedisCluster, error) { return StartRedisCluster(ctx, 3, cfg) })
}
