// Package store keeps the records of tasks.
//
// A record is one piece of work as its caller may ask about it (R2). Replicas share the
// records: each write is a compare-and-swap on the record's revision ([Store.Save],
// [Store.SaveMerged], [Store.SaveIfCurrent]), and a reader waits for the next revision
// ([Store.Wait]). Beside the records are
//
//   - leases ([Store.StartHeartbeat], [Store.IsOwnerLost]): a record names the replica that
//     works on it; the work is lost when that replica's heartbeat ends;
//   - control messages ([ControlQueue]): what other replicas want of the one that works on a
//     task, a cancellation or answers;
//   - questions ([Input], [Claim], [Store.Ask]): of several messages one answers;
//   - ended tasks ([Store.SaveEnded]): most tasks end with their first reply. They are kept
//     like replies, which costs next to nothing, and an index lists them ([Store.List]).
//
// The formats of stored values and the text of keys are read by other replicas and by
// later versions: testdata/stored.json holds samples.
//
// Alternative considered: one entry per task for ended tasks too. A write to the shared
// store for each unary call was a third of the cost of the call.
package store
