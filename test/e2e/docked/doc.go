// Package docked drives a cluster of node containers as a person does: by the
// podium command, by docker, and by the API. Tests of such clusters share it.
package docked
