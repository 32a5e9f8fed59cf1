// Package testserver starts private servers for tests, for the benchmark and for examples. It can
// put a faulty network in front of them. No package that users import depends on it.
//
// Every server runs in its own directory, on free ports of the loopback address, as the calling
// user. It ends with the process that started it, however that process ends: a small shell process
// waits for the end of a pipe. It then kills the servers' process groups and removes the directory.
//
//   - [RequireRabbit] fits most tests: one RabbitMQ node, started by the first test of the binary
//     that calls it and shared by all of them. Tests stay apart through [Namespace]. A test that
//     breaks the shared node (Kill, Pause, Restart) must not run in parallel with others. The next
//     RequireRabbit repairs the node.
//   - [RequireRedis] is the same for one Redis server, which keeps every answered write through a
//     Kill.
//   - [RequireNATS] is the same for one NATS server with JetStream. The first use on a machine
//     builds the program, see [NATSProgram].
//   - [RequirePostgres] is the same for one PostgreSQL server, which keeps all committed data
//     through a Kill. Tests stay apart through [Postgres.Database].
//   - [OwnRabbit] is a node for one test, with its own configuration. [OwnRabbitCluster] is three
//     joined nodes.
//   - [OwnRedis], [OwnNATS] and [OwnPostgres] are servers for one test. [OwnRedisReplica] is a
//     Redis server with a replica that the test can promote. [OwnRedisSentinel] adds a sentinel
//     that promotes the replica. [OwnRedisCluster] and [OwnNATSCluster] are three joined servers.
//   - [RequirePgBouncer] and [OwnPgBouncer] are a PgBouncer in front of a PostgreSQL server.
//   - [OwnDisk] is a small file system that a test can fill.
//   - Each Own function has a Start function, which does the same outside a test.
//   - [NewProxy] is a TCP proxy that cuts, delays, throttles and swallows data. [NewRelay] can only
//     cut, but does so at once.
//
// If the programs of a server are missing, Require and Own skip the test and name the missing
// program. With SWARMIJI_REQUIRE_SERVERS=1 in the environment they fail the test instead.
//
// # Leak checks
//
// While a server runs, one goroutine per server process waits for its end. A leak check excludes it
// with goleak.IgnoreAnyFunction([Reaper]).
//
// # Adding a server
//
// A server is one file with its Start, its Require and its methods, built on process.go and
// node.go. Those two files contain nothing that is specific to one server.
package testserver
