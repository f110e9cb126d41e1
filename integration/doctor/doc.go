// Package doctor tests what a user has when something is wrong: doctor,
// recovery, history, logs and status of the real program, in a real shell.
//
// Faults are put into a real daemon's place one by one. Doctor must find each
// under its code, and where it prints a command, that command, pasted, must mend
// the fault. Places without a fault must be found healthy.
package doctor
