package resultstore

import "context"

// BatchSaver is a store that saves many records in a few round trips. A wrapper of a store must
// implement it itself: otherwise its own Save would not be called, and it gets no batches.
type BatchSaver interface {
	// SaveBatch tries once to save each record. It returns one error for each, in the order of rs:
	//
	//   - nil: the record is saved, as if Save had returned nil.
	//   - Any other error: call Save with this record. SaveBatch returns [ErrUnavailable] where Save
	//     would wait for something that concerns only some of the records.
	//
	// A record may be saved although it has an error. An error of one record does not change the
	// others. Of several records of one task, at least the first is tried. When ctx ends, SaveBatch
	// returns, with an error for each record whose outcome is unknown, and does not use rs any more.
	// Returns [ErrClosed] for each record after Close.
	SaveBatch(ctx context.Context, rs []Record) []error
}
