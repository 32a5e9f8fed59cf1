// Package testserver starts private servers for tests, for the benchmark and for examples, and puts a faulty network in
// front of them. Nothing that users import depends on it.
//
// Every server runs in a directory of its own, on free ports of the loopback address, as the calling user. It ends with
// the process that started it, however that process ends: a small shell process waits for the end of a pipe, then kills
// the servers' process groups and removes the directory.
//
//   - [RequireRabbit] is what most tests want: one RabbitMQ node, started by the first test of the binary that asks and
//     shared by all of them. Tests keep apart by [Namespace]. A test that breaks the shared node (Kill, Pause, Restart)
//     must not run in parallel with others; the next RequireRabbit mends what it left.
//   - [RequireRedis] is the same for one Redis server, which keeps all that it was told through a Kill.
//   - [RequireNATS] is the same for one NATS server with JetStream. The first use on a machine builds it, see [NATSProgram].
//   - [RequirePostgres] is the same for one PostgreSQL server, which keeps what it has committed through a Kill. Tests keep
//     apart by [Postgres.Database].
//   - [OwnRabbit] is a node for one test, with a configuration of its own, and [OwnRabbitCluster] three joined nodes.
//   - [OwnRedis], [OwnNATS] and [OwnPostgres] are servers for one test. [OwnRedisReplica] is a Redis server with a replica that can be
//     promoted, [OwnRedisSentinel] the same with a sentinel that does so, [OwnRedisCluster] and [OwnNATSCluster] are three
//     joined servers.
//   - Each Own has a Start, which is the same outside a test.
//   - [NewProxy] is a TCP proxy that cuts, delays, throttles and swallows. [NewRelay] can only cut, but does so at once.
//
// Where the programs of a server are missing, Require and Own skip the test and say what is missing; with
// SWARMIJI_REQUIRE_SERVERS=1 in the environment they fail it instead.
//
// # Leak checks
//
// While a server runs, one goroutine per server process waits for its end. A leak check leaves it out with
// goleak.IgnoreAnyFunction([Reaper]).
//
// # Adding a server
//
// A server is one file with its Start, its Require and its methods, on top of process.go and node.go, which know nothing
// of any server.
package testserver
