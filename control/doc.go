// Package control sends commands to running consumers: it can ping them, list their tasks, change
// their number of workers, and pause and stop them. Commands and replies are events on an event bus
// ([CommandEvent], [ReplyEvent]), so that one command reaches all nodes without a list of them.
//
// A consumer accepts commands only if its configuration enables them (consumer.Config.Control). Its
// [Server] receives commands and executes them on a [Node]. A [Client] sends commands. A node
// replies only if a command concerns it. The command must name this node or no nodes, and a queue
// that the node consumes or no queues.
//
// # A separate bus
//
// Each subscriber of a bus receives all its events, and each task causes several events. Use a bus
// for commands only, and a second one for replies ([Config].Replies): otherwise each node receives
// the replies of all others. open.Options.Control makes both, and the program swarmiji uses them.
//
// # Authentication
//
// Without [Keys], nodes execute the commands of everyone that can publish on the bus. With keys,
// each command is signed with HMAC-SHA256, including its time and a unique id. A node ignores,
// counts and logs a command in these cases:
//
//   - It is not signed, or signed with an unknown key.
//   - Its time differs by more than [Config].Window, or is before the node's start.
//   - Its id was received before.
//
// Replies are signed too, and bound to their command. Signing does not encrypt: everyone that can
// subscribe to the bus can read commands and replies. They never contain arguments or results of
// tasks. Programs that share a server, but must not control each other, need different keys, even
// in different namespaces.
//
// # Limits
//
// A node examines at most [LookRate] commands in a second, and executes at most [ObeyRate], one
// after the other, concurrently with its tasks. It drops and counts other commands. The constants
// limit the size of commands, replies, remembered ids and incomplete replies.
package control
