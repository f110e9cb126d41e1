// Package recovery is the durable record that a tool call began and how it
// ended, and of what remains to be acknowledged.
//
// A call that may change something is recorded as a run: [Journal.Begin] puts
// its begin record on disk before the first byte goes to a server, [Run.End]
// adds the outcome before the client gets its answer. A run that began and did
// not end, or ended with the outcome unknown, is pending until somebody
// acknowledges it by naming exactly what is pending. No failure of this package
// makes a run that began disappear: what can be lost, at worst, is the news that
// it ended, and then it is listed although nothing is wrong with it.
//
// # Guarantees
//
//   - Begin returned nil: the run survives SIGKILL ([SyncCrash]), or the loss of
//     power ([SyncPower]; concurrent callers share one fdatasync).
//   - Begin returned an error: nothing may be sent. A record of the attempt may
//     survive; it would be listed as unknown.
//   - End returned nil: the outcome survives SIGKILL. It is never waited for on
//     the disk, since a lost end makes a run pending and no run vanish. With the
//     outcome unknown the recovery file has been rewritten too, or its rewriting
//     has failed, is a [Problem], and is tried again every second; the journal
//     holds the run meanwhile.
//   - Acknowledge returned nil: it survives the loss of power.
//   - Every step of [Open], [Journal.Acknowledge], [Journal.Repair] and of a change
//     of segments may be interrupted: what is read back is a union by id of
//     everything found, so doing a step twice or half does no harm.
//   - Run ids never repeat: each Open takes a number greater than any on record
//     and writes it down before it hands out the first id; 64 random bits stand
//     in for the number should every file be lost.
//
// The caller holds the daemon's lock around everything but [Inspect] and
// [ReadHistory], which only read.
//
// # Files
//
// All are 0600 and lie in one directory; the names are the defaults.
//
//	daemon.journal                  the current segment
//	daemon.journal.next             a segment being made; not yet valid
//	daemon.journal.torn-TIME        a tail that was cut off
//	daemon.journal.corrupt-TIME     a damaged segment: mutations stop while it is there
//	daemon.journal.repaired-TIME    the same after its intact records were taken over
//	daemon.recovery.json            the pending runs; absent when there are none
//	daemon.recovery.json.tmp        the same being written; not yet valid
//	daemon.recovery.json.corrupt-TIME, .repaired-TIME    as above
//	daemon.key                      32 random bytes: the key of argument digests
//	daemon.history, daemon.history.1    finished calls, JSON lines, 1 MiB each at most
//
// # Journal, version 1
//
// Integers are little-endian. A segment is a header of 64 bytes, frames, and
// zeros up to its fixed size: it is filled with zeros and synced before it gets
// its name, so later writes need no new block and succeed on a full disk. The last
// 64 KiB take no begin records, so that ends and acknowledgements always have
// room.
//
//	header  0  8 bytes  "ILJOURN" 0xFF
//	        8  u32      version, 1
//	       12  u32      0
//	       16  u64      size of the file
//	       24  36 bytes 0
//	       60  u32      CRC-32C of bytes 0 to 59
//
//	frame   0  4 bytes  0xFF "ILF"
//	        4  u32      length of the body
//	        8  u32      CRC-32C of the length field and the body
//	       12  body
//	           0 to 7 zero bytes, so that a frame's size is a multiple of 8
//	           4 bytes  "FLI" 0xFF
//
// A body is a kind byte and fields: tag byte, uvarint length, value (UTF-8 text or
// a uvarint). A reader skips tags that it does not know. Valid UTF-8 holds no 0xFF,
// so no text that a client chooses can pass for a frame. The kinds:
//
//	1 opened   a daemon began to write: its number, boot id, time
//	2 begin    id, client's request id, owner, client, server, tool, class,
//	           resources, epoch of the lease, digest of the arguments, time
//	3 end      id, outcome, reason, time
//	4 ack      ids, time
//	5 synced   an offset up to which the file is known to be on the disk
//
// # Change of segments
//
// A full or failed segment is replaced by one that holds only what lives: active
// runs, pending runs that the recovery file does not hold yet, acknowledgements of
// the last 30 days (8,192 at most), and the ids of calls that ended in the last
// 10 minutes (4,096 at most; see [Journal.Lookup]). It is written beside the old
// one, synced, renamed over it, and the directory synced. Its cost does not depend
// on how many runs are pending in the recovery file.
//
// # Damage
//
// Whatever is wrong with a segment, every intact record in it is used. The wrong
// place itself is
//
//   - a torn tail when no intact frame follows and the last bytes are not the end
//     of a frame: a write was cut short, so its Begin never returned. It is copied
//     aside, cut, and counted.
//   - a torn tail likewise when the machine was restarted since and the place was
//     not known to be on the disk.
//   - damage otherwise. The file is renamed to .corrupt-TIME, mutations stop, and
//     the [Problem] names the command that mends it.
//
// A recovery file that is not valid JSON or fails its checksum is damaged, too. A
// file of another version, or one that cannot be read, is left exactly as it is:
// mutations stop and nothing is written.
//
// # Failpoints
//
// Built with the tag failpoint, the package kills its own process with SIGKILL
// before or after the file operation that INTERLOCK_FAILPOINT names, such as
// "before rename daemon.recovery.json" or "after sync daemon.journal.next#2" for
// the second one. Run
//
//	go test -tags failpoint -run Failpoint ./recovery
package recovery
