// Package docked uses a cluster of node containers as users do: with podium, docker, and the
// API. Tests of such clusters share it.
package docked
