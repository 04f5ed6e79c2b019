// Package limit has the limits of throttle keys hold over a fleet: rates, windows and
// concurrency of the gates in package throttle, by the records and rules of package
// record, in the bucket of package fleet.
//
// [Limits] stands between the three. To the gates it is a throttle.Fleet, which hears
// what they lack; to the bucket it is a fleet.Kind, which asks for that, and gives back
// what is not used. It decides nothing: what an instance gets is a rule of record, what a
// message may take is one of throttle.
//
// # Locks
//
// A gate calls [Limits] with its mutex held, so Begin and Request take none but that of the
// map of members, within which nothing but the fleet's cache is looked at. A member's
// mutex is held while gates are called.
package limit
