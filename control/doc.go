// Package control lets people and programs speak to running consumers: ping them, ask what they do, change their number of
// workers, pause and stop them. Commands and answers are events ([CommandEvent], [ReplyEvent]) on an event bus, so that one
// command reaches all nodes without a list of them.
//
// A consumer obeys nobody unless its configuration says so (consumer.Config.Control). [Server] is the part of it that
// listens and [Node] what it may be told to do; [Client] is the other end. A node answers only when a command concerns it:
// when the command names no nodes or this one, and no queues or one that the node consumes.
//
// # A bus of its own
//
// Every listener of a bus gets all of its events, and with the events of tasks these are several for each task. Give commands
// a bus that carries nothing else: open.Options.Control makes one, and the program swarmiji speaks over the same.
//
// # Who may command
//
// Without [Keys] everybody who can publish on the bus is obeyed. With keys each command is signed, HMAC-SHA256 over every
// byte of it, with its time and a number that never comes twice. A node then ignores, counts and logs what is not signed, is
// signed with an unknown key, is older or newer than [Config].Window, from before the node's start, or comes again. Answers
// are signed too, and bound to their command. Signing hides nothing: whoever can listen to the bus reads commands and
// answers. These never hold arguments or results of tasks. Programs on one server that are not to command each other need
// different keys, also where their namespaces differ.
//
// # Bounds
//
// A node looks at no more than [LookRate] commands in a second and obeys no more than [ObeyRate], one after the other and
// beside its tasks; the rest is dropped and counted. Commands, answers, the numbers kept against repetition and what a client
// holds of unfinished answers are limited in size, see the constants.
package control
