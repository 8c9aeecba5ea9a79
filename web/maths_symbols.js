// ---- what TeX's commands stand for ----------------------------------------------------------------------------------

// "name character name character ..."
const pairs = text => Object.fromEntries(text.trim().split(/\s+/).reduce((all, word, i, words) => i % 2 ? all : [...all, [word, words[i + 1]]], []));

const LETTERS = pairs(`alpha α beta β gamma γ delta δ epsilon ϵ varepsilon ε zeta ζ eta η theta θ vartheta ϑ iota ι kappa κ lambda λ
    mu μ nu ν xi ξ omicron ο pi π varpi ϖ rho ρ varrho ϱ sigma σ varsigma ς tau τ upsilon υ phi ϕ varphi φ chi χ psi ψ omega ω
    ell ℓ hbar ℏ imath ı jmath ȷ wp ℘ Re ℜ Im ℑ aleph ℵ beth ℶ`);
// These stand upright.
const UPRIGHT = pairs(`Gamma Γ Delta Δ Theta Θ Lambda Λ Xi Ξ Pi Π Sigma Σ Upsilon Υ Phi Φ Psi Ψ Omega Ω
    infty ∞ emptyset ∅ varnothing ∅ partial ∂ nabla ∇ top ⊤ bot ⊥ angle ∠ triangle △ square □ checkmark ✓ degree ° dots … ldots … cdots ⋯ vdots ⋮ ddots ⋱
    dotsc … dotsb ⋯ aa å # # $ $ % % & & _ _ S § P ¶ pounds £ euro € copyright © dagger † ddagger ‡ star ⋆ clubsuit ♣ diamondsuit ♢ heartsuit ♡ spadesuit ♠
    flat ♭ natural ♮ sharp ♯ therefore ∴ because ∵ blacksquare ■ Box □ Diamond ◇ prime ′`);
const OPERATORS = pairs(`pm ± mp ∓ times × div ÷ cdot ⋅ ast ∗ circ ∘ bullet ∙ oplus ⊕ ominus ⊖ otimes ⊗ odot ⊙ wedge ∧ land ∧ vee ∨ lor ∨ neg ¬ lnot ¬
    cap ∩ cup ∪ setminus ∖ smallsetminus ∖ le ≤ leq ≤ leqslant ⩽ ge ≥ geq ≥ geqslant ⩾ ne ≠ neq ≠ equiv ≡ approx ≈ sim ∼ simeq ≃ cong ≅ propto ∝ ll ≪ gg ≫
    prec ≺ succ ≻ preceq ⪯ succeq ⪰ in ∈ notin ∉ ni ∋ subset ⊂ supset ⊃ subseteq ⊆ supseteq ⊇ subsetneq ⊊ sqsubseteq ⊑ perp ⟂ parallel ∥ mid ∣ nmid ∤
    forall ∀ exists ∃ nexists ∄ vdash ⊢ models ⊨ vDash ⊨ to → rightarrow → leftarrow ← gets ← leftrightarrow ↔ Rightarrow ⇒ implies ⟹ Leftarrow ⇐ impliedby ⟸
    Leftrightarrow ⇔ iff ⟺ mapsto ↦ longmapsto ⟼ longrightarrow ⟶ longleftarrow ⟵ uparrow ↑ downarrow ↓ updownarrow ↕ hookrightarrow ↪ rightharpoonup ⇀
    rightleftharpoons ⇌ nearrow ↗ searrow ↘ colon : coloneqq ≔ triangleq ≜ doteq ≐ asymp ≍ bowtie ⋈ amalg ⨿ uplus ⊎ sqcup ⊔ sqcap ⊓ diamond ⋄ lhd ⊲ rhd ⊳`);
const FENCES = pairs(`langle ⟨ rangle ⟩ lfloor ⌊ rfloor ⌋ lceil ⌈ rceil ⌉ { { } } lbrace { rbrace } lbrack [ rbrack ] | ‖ Vert ‖ vert | lvert | rvert | lVert ‖ rVert ‖ backslash \\`);
// Limits stand below and above where there is room; integrals' stand beside.
const BIG = pairs('sum ∑ prod ∏ coprod ∐ bigcup ⋃ bigcap ⋂ bigoplus ⨁ bigotimes ⨂ bigvee ⋁ bigwedge ⋀ bigsqcup ⨆ bigodot ⨀');
const INTEGRALS = pairs('int ∫ iint ∬ iiint ∭ oint ∮ oiint ∯');
const ACCENTS = pairs('hat ^ widehat ^ bar ‾ overline ‾ vec → overrightarrow → tilde ~ widetilde ~ dot ˙ ddot ¨ acute ´ grave ` check ˇ breve ˘ mathring ˚ overbrace ⏞');
const UNDERS = pairs('underline _ underbrace ⏟');
const FUNCTIONS = `sin cos tan cot sec csc sinh cosh tanh coth arcsin arccos arctan log ln lg exp ker dim deg arg hom
    gcd Pr`.split(/\s+/);
const LIMIT_FUNCTIONS = {
    ...pairs('lim lim max max min min sup sup inf inf det det'),
    limsup: 'lim\u00a0sup', liminf: 'lim\u00a0inf', argmax: 'arg\u00a0max', argmin: 'arg\u00a0min',
};
const BLANKS = { ',': 3 / 18, ':': 4 / 18, ';': 5 / 18, ' ': 4 / 18, '!': -3 / 18, quad: 1, qquad: 2, thinspace: 3 / 18, enspace: .5, '~': 4 / 18 };

// Letters of another style are characters of their own in Unicode: [first of A-Z, of a-z, of 0-9, those that are elsewhere].
const STYLES = {
    mathbb: [0x1d538, 0x1d552, 0x1d7d8, pairs('C ℂ H ℍ N ℕ P ℙ Q ℚ R ℝ Z ℤ')],
    mathcal: [0x1d49c, 0x1d4b6, 0, pairs('B ℬ E ℰ F ℱ H ℋ I ℐ L ℒ M ℳ R ℛ e ℯ g ℊ o ℴ')],
    mathfrak: [0x1d504, 0x1d51e, 0, pairs('C ℭ H ℌ I ℑ R ℜ Z ℨ')],
    mathbf: [0x1d400, 0x1d41a, 0x1d7ce, {}], boldsymbol: [0x1d468, 0x1d482, 0x1d7ce, pairs('h 𝒉')],
    mathsf: [0x1d5a0, 0x1d5ba, 0x1d7e2, {}], mathtt: [0x1d670, 0x1d68a, 0x1d7f6, {}], mathit: [0x1d434, 0x1d44e, 0, pairs('h ℎ')],
};
Object.assign(STYLES, { mathscr: STYLES.mathcal, bm: STYLES.boldsymbol, Bbb: STYLES.mathbb });

function restyle(text, style) {
    const [upper, lower, digit, others] = STYLES[style];
    return [...text].map(character => {
        const bases = [[/[A-Z]/, upper, 'A'], [/[a-z]/, lower, 'a'], [/[0-9]/, digit, '0']];
        const [, base, first] = bases.find(([range]) => range.test(character)) ?? [];
        return others[character] ?? (base ? String.fromCodePoint(base + character.charCodeAt(0) - first.charCodeAt(0)) : character);
    }).join('');
}

