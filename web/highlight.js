// ---- colours of code ------------------------------------------------------------------------------------------------

// A language is a row: its comments, strings and words. The first pattern that fits at a place wins, so what stands in a
// string is no comment. This is a reader's aid and no compiler: what is not told apart keeps the colour of the text.

const anyOf = text => new RegExp(`\\b(?:${text.trim().split(/\s+/).join('|')})\\b`, 'y');
const NUMBER = /(?<![\w.])(?:0[xX][\da-fA-F_]+|0[bB][01_]+|\d[\d_]*(?:\.\d[\d_]*)?(?:[eE][+-]?\d+)?)[a-zA-Z%]*\b/y;
const CALL = /\b[A-Za-z_]\w*(?=\s*\()/y, TYPE = /\b[A-Z]\w*[a-z]\w*\b/y;
const SLASHES = /\/\/[^\n]*|\/\*[^]*?(?:\*\/|$)/y, HASHES = /#[^\n]*/y, DASHES = /--[^\n]*/y;
const QUOTES = /"(?:\\.|[^"\\\n])*"?|'(?:\\.|[^'\\\n])*'?/y, DOUBLE = /"(?:\\[^]|[^"\\])*"?/y, SINGLE_CHARACTER = /"(?:\\[^]|[^"\\\n])*"?|'(?:\\[^]|[^'\\\n])+'/y;
const C_WORDS = `if else for while do switch case default break continue return goto sizeof struct union enum typedef static const
    extern inline volatile void int char short long float double unsigned signed bool auto register restrict true false NULL`;
const JS_WORDS = `const let var function return if else for while do switch case default break continue new delete typeof instanceof in of
    class extends super this import export from as async await yield try catch finally throw null undefined true false static get set void
    interface type enum implements private public protected readonly declare namespace abstract`;

const LANGUAGES = {
    c: [['comment', SLASHES], ['meta', /^[ \t]*#[ \t]*\w+/my], ['string', SINGLE_CHARACTER], ['number', NUMBER], ['keyword', anyOf(`${C_WORDS}
        class template typename namespace using public private protected virtual override new delete this nullptr constexpr noexcept try catch throw
        operator friend explicit mutable static_cast size_t uint8_t uint16_t uint32_t uint64_t int8_t int16_t int32_t int64_t __global__ __device__`)], ['call', CALL]],
    python: [['comment', HASHES], ['string', /[rbfuRBFU]{0,2}(?:"""[^]*?(?:"""|$)|'''[^]*?(?:'''|$)|"(?:\\.|[^"\\\n])*"?|'(?:\\.|[^'\\\n])*'?)/y], ['meta', /^[ \t]*@[\w.]+/my], ['number', NUMBER],
        ['keyword', anyOf(`def class return if elif else for while in not and or is lambda import from as with try except finally raise assert pass break
            continue global nonlocal yield async await del None True False match case self`)], ['call', CALL]],
    javascript: [['comment', SLASHES], ['string', /`(?:\\[^]|[^`\\])*`?|"(?:\\.|[^"\\\n])*"?|'(?:\\.|[^'\\\n])*'?/y], ['number', NUMBER], ['keyword', anyOf(JS_WORDS)], ['call', CALL], ['type', TYPE]],
    java: [['comment', SLASHES], ['meta', /@\w+/y], ['string', QUOTES], ['number', NUMBER], ['keyword', anyOf(`${C_WORDS} class interface extends implements public
        private protected final abstract new this super import package try catch finally throw throws null instanceof boolean byte var record override
        using namespace string async await get set foreach in is as out ref readonly sealed partial internal fun val when object data companion suspend by`)], ['call', CALL], ['type', TYPE]],
    rust: [['comment', SLASHES], ['meta', /#!?\[[^\]\n]*\]?/y], ['string', /b?"(?:\\[^]|[^"\\])*"?|b?'(?:\\[^]|[^'\\\n])'/y], ['number', NUMBER],
        ['keyword', anyOf(`fn let mut const static if else match for while loop in return break continue struct enum impl trait pub use mod crate self Self super
            where as ref move dyn async await unsafe extern type true false bool char str u8 u16 u32 u64 usize i8 i16 i32 i64 isize f32 f64`)], ['call', /\b[a-z_]\w*!?(?=\s*\()/y], ['type', TYPE]],
    go: [['comment', SLASHES], ['string', /`[^`]*`?|"(?:\\.|[^"\\\n])*"?|'(?:\\.|[^'\\\n])+'/y], ['number', NUMBER],
        ['keyword', anyOf(`package import func return if else for range switch case default break continue go defer select chan map struct interface type var const
            nil true false fallthrough string int int64 float64 bool byte error any make new append len`)], ['call', CALL]],
    bash: [['comment', /(?<![\S])#[^\n]*/y], ['string', /"(?:\\[^]|[^"\\])*"?|'[^']*'?/y], ['variable', /\$(?:\w+|\{[^}\n]*\}?|[@*#?!$-])/y], ['keyword', anyOf(`if then else elif fi for in do done
        while until case esac function return local export readonly set unset shift exit echo cd source sudo FROM RUN COPY CMD ENTRYPOINT ENV WORKDIR EXPOSE ARG ADD`)], ['meta', /(?<=\s)--?[A-Za-z][\w-]*/y]],
    json: [['key', /"(?:\\.|[^"\\\n])*"(?=\s*:)/y], ['string', DOUBLE], ['number', /-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?/y], ['keyword', anyOf('true false null')], ['comment', SLASHES]],
    yaml: [['comment', /(?<!\S)#[^\n]*/y], ['key', /(?<![\w.\/-])[\w.\/-]+(?=\s*:(?:\s|$))/my], ['string', QUOTES], ['number', NUMBER], ['keyword', anyOf('true false null yes no on off')]],
    ini: [['comment', /[#;][^\n]*/y], ['meta', /^\s*\[[^\]\n]*\]+/my], ['key', /^[ \t]*[\w.-]+(?=\s*=)/my], ['string', QUOTES], ['number', NUMBER], ['keyword', anyOf('true false')]],
    html: [['comment', /<!--[^]*?(?:-->|$)/y], ['meta', /<[!?][^>]*>?/y], ['keyword', /<\/?[A-Za-z][\w:.-]*|\/?>/y], ['key', /(?<![\w:@.-])[\w:@.-]+(?==)/y], ['string', QUOTES]],
    css: [['comment', /\/\*[^]*?(?:\*\/|$)/y], ['string', QUOTES], ['meta', /@[\w-]+/y], ['key', /(?<![\w-])(?:--)?[a-z-]+(?=\s*:[^:{}\n]*[;}\n])/y], ['number', /#[\da-fA-F]{3,8}\b|-?\d*\.?\d+[a-z%]*/y], ['type', /[.#][\w-]+/y]],
    sql: [['comment', /--[^\n]*|\/\*[^]*?(?:\*\/|$)/y], ['string', /'(?:''|[^'])*'?/y], ['number', NUMBER], ['keyword', new RegExp(anyOf(`select from where and or not in is null as join left right inner outer
        full on group by order having limit offset insert into values update set delete create table index view drop alter add primary key foreign
        references unique default distinct union all exists between like case when then else end with asc desc integer text varchar int boolean`).source, 'iy')], ['call', CALL]],
    diff: [['meta', /^(?:@@|diff |index |--- |\+\+\+ )[^\n]*/my], ['added', /^\+[^\n]*/my], ['removed', /^-[^\n]*/my]],
    ruby: [['comment', HASHES], ['string', QUOTES], ['variable', /[@:$]\w+/y], ['number', NUMBER], ['keyword', anyOf(`def end class module if elsif else unless while until do for in return yield begin
        rescue ensure raise nil true false self require attr_accessor puts and or not then case when`)], ['call', CALL], ['type', TYPE]],
    php: [['comment', /\/\/[^\n]*|#[^\n]*|\/\*[^]*?(?:\*\/|$)/y], ['meta', /<\?php|\?>/y], ['variable', /\$\w+/y], ['string', QUOTES], ['number', NUMBER], ['keyword', anyOf(`${JS_WORDS} echo foreach function array use
        require include isset unset final`)], ['call', CALL], ['type', TYPE]],
    lua: [['comment', DASHES], ['string', QUOTES], ['number', NUMBER], ['keyword', anyOf(`local function end if then else elseif for in do while repeat until return break nil true false and or not where let
        data type case of module import instance class deriving`)], ['call', CALL]],
    swift: [['comment', SLASHES], ['meta', /[@#]\w+/y], ['string', DOUBLE], ['number', NUMBER], ['keyword', anyOf(`let var func if else guard for in while repeat return struct class enum protocol extension import
        switch case default break continue init self nil true false throws throw try catch do async await static private public internal override some any where defer`)], ['call', CALL], ['type', TYPE]],
};
const ALIASES = {
    h: 'c', cpp: 'c', 'c++': 'c', cc: 'c', hpp: 'c', cu: 'c', cuda: 'c', objc: 'c', glsl: 'c', py: 'python', python3: 'python', js: 'javascript', jsx: 'javascript', ts: 'javascript', tsx: 'javascript',
    typescript: 'javascript', mjs: 'javascript', 'c#': 'java', cs: 'java', csharp: 'java', kotlin: 'java', kt: 'java', scala: 'java', dart: 'java', rs: 'rust', golang: 'go', sh: 'bash', shell: 'bash', zsh: 'bash',
    console: 'bash', fish: 'bash', dockerfile: 'bash', docker: 'bash', make: 'bash', makefile: 'bash', json5: 'json', jsonc: 'json', jsonl: 'json', yml: 'yaml', toml: 'ini', conf: 'ini', properties: 'ini', xml: 'html', svg: 'html',
    vue: 'html', htm: 'html', scss: 'css', less: 'css', postgresql: 'sql', mysql: 'sql', sqlite: 'sql', patch: 'diff', rb: 'ruby', r: 'python', haskell: 'lua', hs: 'lua', julia: 'ruby', jl: 'ruby', perl: 'php', pl: 'php',
};
const HIGHLIGHT_MOST = 100_000; // characters; beyond that code is plain

function rulesOf(language) {
    const name = language.toLowerCase();
    const own = (table, key) => Object.hasOwn(table, key) ? table[key] : undefined;
    return own(LANGUAGES, own(ALIASES, name) ?? name);
}

// Nodes and strings of code; of a language that has no row, its text.
function highlight(text, language) {
    const rules = rulesOf(language), nodes = [];
    if (!rules || text.length > HIGHLIGHT_MOST) return [text];
    let plain = 0;
    for (let at = 0; at < text.length;) {
        const [kind, length] = firstRule(rules, text, at);
        if (kind) {
            if (plain < at) nodes.push(text.slice(plain, at));
            nodes.push(make('span', { class: `code-${kind}` }, text.slice(at, at + length)));
            plain = at + length;
        }
        at += length;
    }
    return plain < text.length ? [...nodes, text.slice(plain)] : nodes;
}

// [kind, length] of the first rule that fits; no kind: so many characters are plain.
function firstRule(rules, text, at) {
    for (const [kind, regex] of rules) {
        const match = matchAt(regex, text, at);
        if (match?.[0]) return [kind, match[0].length];
    }
    return [null, matchAt(/\w+|[^]/y, text, at)[0].length];
}

