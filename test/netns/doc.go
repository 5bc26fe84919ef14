// Package netns gives tests a network of their own.
package netns
