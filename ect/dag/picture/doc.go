// Package picture draws a graph of boxes and arrows as an SVG image, such as the tokens of a workflow or its
// steps. It is pure and knows neither: its caller says what stands in each box.
//
// [Layout] places the boxes: each one row or more below those that have an arrow to it (layers by longest
// path), and within a layer near those that it is connected to (barycenter). The same boxes and arrows give the
// same picture. Arrows may form cycles.
//
// # Hostile text
//
// The image is SVG 1.1 without scripts, links and references. Text is shortened, its control characters and
// marks that turn the direction of text are written as escapes, and what a box cannot hold is cut at its edge.
// Colours only repeat what the caller says in words.
//
// # Bounds
//
// At most [MaxBoxes] boxes and [MaxArrows] arrows are drawn; one more box says how many are not. With them an
// image has at most some 5 MB, and is laid out in some milliseconds.
//
// # Alternatives considered
//
// A program that draws graphs (Graphviz) draws better and would have to be installed. Layers that are as wide as
// the graph keep arrows short, and make images that no screen shows: a wide layer is broken into rows.
package picture
