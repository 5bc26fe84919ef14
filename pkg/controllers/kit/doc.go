// Package kit is what every controller is given.
package kit
