package serializer

// Wire configures the encoding of tasks and results, for producers, consumers, and tools that show
// messages. The zero value writes msgpack, reads every format of this module, and neither seals nor
// compresses.
type Wire struct {
	// Serializers encode arguments and results. The first one writes, all read. Default: msgpack,
	// JSON and raw bytes.
	Serializers []Serializer
	// Formats encode whole tasks as messages. The first one writes. The first one that knows a
	// message reads it. Default: msgpack.Compact, [JSONFormat], [RawFormat].
	Formats []Format
	// QueueFormats names queues whose messages are written in another format.
	QueueFormats map[string]Format
	// Sealer seals and opens tasks and results, see docs/security.md. nil: nothing is sealed, and
	// sealed tasks are dead-lettered.
	Sealer Sealer
	// AcceptPlain accepts plain tasks and results too, while other processes are being moved to
	// sealing. False: with a Sealer, a plain task is dead-lettered, and a plain result is an error,
	// [ErrNotSealed].
	AcceptPlain bool
	// Compression compresses arguments and results. Default: none. Data compressed with zstd, s2 or
	// gzip are always read.
	Compression Compression
	// MaxBody is the largest message to send or to read, in bytes. Default: 1 MiB.
	MaxBody int
}
