package picture_test

import (
	"bytes"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/aepb/aepb-gateway/ect/dag/picture"
)

// element is what the tests read of an image.
type element struct {
	XMLName  xml.Name
	Y        int       `xml:"y,attr"`
	X        int       `xml:"x,attr"`
	D        string    `xml:"d,attr"`
	Title    *string   `xml:"title"`
	Texts    []string  `xml:"text"`
	Elements []element `xml:",any"`
}

func draw(t testing.TB, boxes []picture.Box, arrows []picture.Arrow) (image string, root element) {
	t.Helper()
	var out bytes.Buffer
	if err := picture.Layout(boxes, arrows).SVG(&out); err != nil {
		t.Fatal(err)
	}
	if err := xml.Unmarshal(out.Bytes(), &root); err != nil {
		t.Fatalf("the image is not well-formed: %v", err)
	}
	return out.String(), root
}

// boxesOf are the boxes of an image, in the order in which they were given.
func boxesOf(root element) (boxes []element) {
	for _, e := range root.Elements {
		if e.XMLName.Local == "svg" {
			boxes = append(boxes, e)
		}
	}
	return boxes
}

func arrowsOf(root element) (n int) {
	for _, e := range root.Elements {
		if strings.Contains(e.D, "C") {
			n++
		}
	}
	return n
}

func named(names ...string) (boxes []picture.Box) {
	for _, name := range names {
		boxes = append(boxes, picture.Box{Lines: []string{name}})
	}
	return boxes
}

// TestLayout_Rows: rows from above, and in each the boxes from the left.
func TestLayout_Rows(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		boxes  []picture.Box
		arrows []picture.Arrow
		want   string
	}{
		"no boxes":                  {nil, nil, ""},
		"one":                       {named("a"), nil, "a"},
		"a chain":                   {named("a", "b", "c"), []picture.Arrow{{0, 1}, {1, 2}}, "a|b|c"},
		"given backwards":           {named("c", "b", "a"), []picture.Arrow{{1, 0}, {2, 1}}, "a|b|c"},
		"the longest path counts":   {named("a", "b", "c"), []picture.Arrow{{0, 1}, {1, 2}, {0, 2}}, "a|b|c"},
		"a diamond":                 {named("a", "b", "c", "d"), []picture.Arrow{{0, 1}, {0, 2}, {1, 3}, {2, 3}}, "a|b c|d"},
		"arrows do not cross":       {named("a", "b", "c", "d"), []picture.Arrow{{0, 3}, {1, 2}}, "a b|d c"},
		"a cycle":                   {named("a", "b", "c"), []picture.Arrow{{0, 1}, {1, 2}, {2, 0}}, "a|b|c"},
		"below a cycle":             {named("a", "b", "c"), []picture.Arrow{{0, 1}, {1, 0}, {1, 2}}, "a|b|c"},
		"its own parent":            {named("a"), []picture.Arrow{{0, 0}}, "a"},
		"ends that are not there":   {named("a", "b"), []picture.Arrow{{-1, 0}, {0, 2}, {7, 9}}, "a b"},
		"a wide layer":              {named("a", "b", "c", "d", "e", "f", "g"), nil, "a b c d e f|g"},
		"an arrow that comes twice": {named("a", "b"), []picture.Arrow{{0, 1}, {0, 1}}, "a|b"},
	} {
		_, root := draw(t, tc.boxes, tc.arrows)
		boxes := boxesOf(root)
		slices.SortFunc(boxes, func(a, b element) int { return (a.Y-b.Y)*100_000 + a.X - b.X })
		var rows []string
		for i, b := range boxes {
			text := strings.Join(b.Texts, ",")
			if i > 0 && b.Y == boxes[i-1].Y {
				rows[len(rows)-1] += " " + text
			} else {
				rows = append(rows, text)
			}
		}
		got := strings.Join(rows, "|")
		if got != tc.want {
			t.Errorf("%s: %s, want %s", name, got, tc.want)
		}
	}
}

// TestLayout_RandomGraphs: each box is drawn once and at a place of its own, below those that lead to it where there
// is no cycle, and the same again each time.
func TestLayout_RandomGraphs(t *testing.T) {
	t.Parallel()
	for seed := range uint64(60) {
		random := rand.New(rand.NewPCG(seed, 1))
		n := 1 + random.IntN(40)
		boxes := make([]picture.Box, n)
		var arrows []picture.Arrow
		for range random.IntN(3 * n) {
			arrows = append(arrows, picture.Arrow{From: random.IntN(n), To: random.IntN(n)})
			if a := &arrows[len(arrows)-1]; seed%2 == 0 && a.From > a.To { // no cycle
				a.From, a.To = a.To, a.From
			}
		}
		image, root := draw(t, boxes, arrows)
		drawn, taken := boxesOf(root), map[[2]int]bool{}
		for _, b := range drawn {
			taken[[2]int{b.X, b.Y}] = true
		}
		if len(drawn) != n || len(taken) != n {
			t.Fatalf("seed %d: %d boxes at %d places, want %d", seed, len(drawn), len(taken), n)
		}
		for _, a := range arrows {
			if seed%2 == 0 && a.From != a.To && drawn[a.From].Y >= drawn[a.To].Y {
				t.Fatalf("seed %d: box %d is not above box %d", seed, a.From, a.To)
			}
		}
		if again, _ := draw(t, boxes, arrows); again != image {
			t.Fatalf("seed %d: the picture differs the second time", seed)
		}
	}
}

// TestLayout_Bounds: what is too much is counted in one more box.
func TestLayout_Bounds(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("<", 100_000)
	many := slices.Repeat([]picture.Box{{Lines: []string{long, long, long, long, long}, Title: long}}, 10_000)
	var arrows []picture.Arrow
	for i := range 10_000 {
		arrows = append(arrows, picture.Arrow{From: i % 499, To: 499}, picture.Arrow{From: i, To: 9999})
	}
	image, root := draw(t, many, arrows)
	boxes := boxesOf(root)
	if rest := boxes[len(boxes)-1].Texts; len(boxes) != picture.MaxBoxes+1 || strings.Join(rest, ", ") != "and 9500 more, and 8000 more arrows" {
		t.Errorf("%d boxes, and %q", len(boxes), rest)
	}
	if n := arrowsOf(root); n != picture.MaxArrows || len(image) > 4<<20 {
		t.Errorf("%d arrows, %d bytes", n, len(image))
	}
}

// TestSVG_HostileText: text is text, whatever it holds, and nothing in an image acts or loads anything.
func TestSVG_HostileText(t *testing.T) {
	t.Parallel()
	for foreign, want := range map[string]string{
		`<script>alert(1)</script>`:        `<script>alert(1)</script>`,
		`]]><a href="https://evil.test"/>`: `]]><a href="https://evil.test"/>`,
		`"&amp;'`:                          `"&amp;'`,
		"a\x00\x1b[31mb\nc":                `a\x00\x1b[31mb\nc`,
		"refund\u202eGNP.\u2066":           `refund\u202eGNP.\u2066`,
		"\xff\ufffe\U000e0041":             "\ufffd\\ufffe\\U000e0041",
		"Où est le musée? 🏛":               "Où est le musée? 🏛",
	} {
		image, root := draw(t, []picture.Box{{Lines: []string{foreign}, Title: foreign, Tone: 99}}, nil)
		boxes := boxesOf(root)
		if len(boxes) != 1 || len(boxes[0].Texts) != 1 || boxes[0].Texts[0] != want || boxes[0].Title == nil || *boxes[0].Title != want {
			t.Errorf("%q: %+v, want %q", foreign, boxes, want)
		}
		for decoder := xml.NewDecoder(strings.NewReader(image)); ; {
			token, err := decoder.Token()
			if errors.Is(err, io.EOF) {
				break
			}
			if start, ok := token.(xml.StartElement); ok && !slices.Contains([]string{"svg", "rect", "path", "text", "title"}, start.Name.Local) {
				t.Errorf("%q: element %s", foreign, start.Name.Local)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
	}
}

// TestSVG_Tones: each tone has colours of its own, and an error of the writer is returned.
func TestSVG_Tones(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	for _, tone := range []picture.Tone{picture.Plain, picture.Waiting, picture.Active, picture.Good, picture.Warning, picture.Bad} {
		image, _ := draw(t, []picture.Box{{Lines: []string{"a"}, Tone: tone}}, nil)
		seen[image] = true
	}
	if len(seen) != 6 {
		t.Errorf("%d looks, want 6", len(seen))
	}
	if err := picture.Layout(named("a"), nil).SVG(failing{}); !errors.Is(err, io.ErrShortWrite) {
		t.Errorf("error %v", err)
	}
}

type failing struct{}

func (failing) Write([]byte) (int, error) { return 0, io.ErrShortWrite }

// BenchmarkLayout_Largest draws the largest picture.
func BenchmarkLayout_Largest(b *testing.B) {
	boxes := make([]picture.Box, picture.MaxBoxes)
	var arrows []picture.Arrow
	for i := range picture.MaxArrows {
		boxes[i%picture.MaxBoxes] = picture.Box{Lines: []string{fmt.Sprint(i), "line"}}
		arrows = append(arrows, picture.Arrow{From: i % 400, To: i%400 + 1 + i%99})
	}
	for b.Loop() {
		if err := picture.Layout(boxes, arrows).SVG(io.Discard); err != nil {
			b.Fatal(err)
		}
	}
}
