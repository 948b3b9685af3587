import js from '@eslint/js'
import ts from 'typescript-eslint'

export default ts.config(
  { ignores: ['dist/', 'build/', 'node_modules/', 'coverage/', 'examples/*/', 'test/fixtures/'] },
  js.configs.recommended,
  {
    files: ['**/*.ts'],
    extends: [ts.configs.recommendedTypeChecked],
    languageOptions: { parserOptions: { projectService: true, tsconfigRootDir: import.meta.dirname } },
    rules: {
      '@typescript-eslint/consistent-type-imports': 'error',
      '@typescript-eslint/no-floating-promises': 'error',
      '@typescript-eslint/require-await': 'off',
      'no-control-regex': 'off',
      // As an object without keys of its own a pattern "matches" every text.
      'no-restricted-syntax': ['error', {
        selector: "CallExpression[callee.property.name='toMatchObject'] Property > Literal[regex].value",
        message: 'toMatchObject does not look at a pattern: use expect.stringMatching(…)',
      }],
    },
  },
  {
    files: ['**/*.{js,mjs}'],
    languageOptions: {
      globals: {
        process: 'readonly', console: 'readonly', Buffer: 'readonly', URL: 'readonly',
        setTimeout: 'readonly', clearTimeout: 'readonly', performance: 'readonly',
      },
    },
  },
)
