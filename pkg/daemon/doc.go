// Package daemon is what every main function shares: flags and the config
// file, logs, signals, health, metrics, serving, and the messages to systemd.
package daemon
