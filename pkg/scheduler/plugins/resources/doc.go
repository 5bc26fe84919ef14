// Package resources keeps nodes from being given more than they have, and
// prefers those with the most and the most evenly left.
package resources
