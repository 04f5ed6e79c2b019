// Command peers has the servers and the clients of the queues that `fila bench` compares with
// fila. They are a module of their own, so that fila carries none of them. `fila bench --peers
// FILE` runs the program in the place of its own server and load processes; everything else of a
// measurement is the same ([load.Run]).
//
// main.go starts processes and has the table of peers. Each other file is a peer: how its server
// is started, and a [system.Target].
package main
