// Package container has what the messages of a queue are kept in, made for backlogs of
// millions: a [Table] finds values by sequence, [Lists] are lists in the order of stamps,
// [Timers] return the due ones. They do not know what their values mean.
//
// Their memory is bounded by what is in them now, not by what once was: it comes in
// chunks, so that nothing is ever copied to grow, and goes with them, a bit at a time. In
// a steady state nothing is allocated, and without pointers in the values of a Table the
// garbage collector never walks it.
//
// Nothing here is safe for concurrent use.
package container
