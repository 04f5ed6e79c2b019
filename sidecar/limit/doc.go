// Package limit shares the limits of throttle keys in a fleet: rates, windows and
// concurrency of the gates in package throttle, by the records and rules of package
// record, in the bucket of package fleet.
//
// [Limits] connects the three. To the gates it is a throttle.Fleet and receives their
// requests. To the bucket it is a fleet.Kind, which requests leases and returns unused
// ones. It decides nothing: package record has the rules for what an instance gets,
// package throttle the rules for what a message may take.
//
// # Locks
//
// A gate calls [Limits] with its mutex locked, so Begin and Request lock only the map
// of members, and inside of it only the fleet's cache. A member's mutex is held while
// gates are called.
package limit
