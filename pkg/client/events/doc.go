// Package events tells users what a daemon did to an object: it writes core/v1
// Events. Recording never blocks and never fails: what cannot be written in
// time, or what an object has too much of, is dropped and counted.
package events
