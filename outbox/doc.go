// Package outbox sends messages that a program has stored in its own database, in the transaction
// of its own data. A task is then queued on any broker if and only if the transaction commits.
//
// A writer stores the messages: package outbox/sqloutbox, as producer.Config.Outbox. A [Relay]
// reads them, publishes them to a [broker.Broker], and deletes them when the broker has confirmed
// them. It runs in a producer, in a consumer, or as "swarmiji relay". Messages are stored routed,
// encoded and sealed. So a relay needs neither the types of the tasks nor keys.
//
// # Promises
//
//   - The message of a committed transaction is published at least once. No other message is.
//   - It is published again, with the same id and generation, only if a relay died or lost its
//     database between the publish and the deletion, or if the outcome of the publish is unknown.
//   - Messages with one OrderKey are published in the order of their submissions, if each
//     transaction began after the one before it had committed. Messages without a key are
//     independent.
//   - A message that fails stops only its key. The relay tries it again, after up to a minute. A
//     queue that does not exist is such a failure, since a consumer may create it later.
//   - A message that the broker can never accept goes to the dead messages of the outbox, with the
//     reason. Its key continues without it. Such errors are broker.ErrMalformed, broker.ErrTooLarge
//     and broker.ErrUnsupported.
//   - Any number of relays share the work. A new relay has its share within one lease. When the
//     lease of a dead relay ends, the others take its share over.
//
// A relay may be paused for longer than its lease, as in a stopped virtual machine. It may then
// publish messages late that another relay has published since. Their ids are the same, but the
// order of the key may break. Nothing is lost: deletions name the stored rows by number and id.
// PostgreSQL may give a number again, if a crash undid a commit that did not wait for the disk.
package outbox
